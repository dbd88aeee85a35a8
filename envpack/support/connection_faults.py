"""Why a connection fails: what TLS libraries say, and which proxy a request goes through.

The texts are those of OpenSSL, and of rustls in its messages and in its debug output.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from envpack.support.redaction import redact
from envpack.support.text import one_line


@dataclass(frozen=True)
class TLSFault:
    """Why a server and a client do not agree on an encrypted connection."""

    pattern: re.Pattern[str]
    reason: str  # about the server, which is called "it"
    hint: str


_FAULTS = (
    TLSFault(
        re.compile(r"certificate (?:has )?expired|InvalidCertificate\(\s*Expired"),
        "its certificate has expired",
        "the server's owner renews the certificate; if it is valid, correct the clock of this machine",
    ),
    TLSFault(
        re.compile(r"certificate is not yet valid|certificate not valid yet|InvalidCertificate\(\s*NotValidYet"),
        "its certificate is not valid yet",
        "correct the clock of this machine; if it is right, the server's owner replaces the certificate",
    ),
    TLSFault(
        re.compile(
            r"(?:Hostname|IP address) mismatch|certificate not valid for|InvalidCertificate\(\s*NotValidForName"
        ),
        "its certificate is for another name",
        "use a name of the server that its certificate has, or let its owner add this one",
    ),
    TLSFault(
        re.compile(r"CaUsedAsEndEntity"),
        "its certificate is that of an authority",
        "give the server a certificate of its own, with CA:FALSE in its basicConstraints; it may be signed by itself",
    ),
    TLSFault(
        re.compile(r"CertificateRequired|CERTIFICATE_REQUIRED|certificate required"),
        "it requires a certificate of the client",
        "name a file with key and certificate in SSL_CLIENT_CERT, for a package index; else use an address that"
        " requires none",
    ),
    TLSFault(
        re.compile(r"WRONG_VERSION_NUMBER|\bInvalidContentType\b"),
        "it does not speak TLS",
        "check the port, and whether the address has to begin with http://",
    ),
)
UNTRUSTED = TLSFault(
    re.compile(
        r"invalid peer certificate|CERTIFICATE_VERIFY_FAILED|certificate verify failed|SSL certificate problem"
        r"|UnknownIssuer|InvalidCertificate|CertificateUnknown"
    ),
    "its certificate is not trusted",
    "add the authority that signed it to those of this machine (update-ca-certificates),"
    " or name its file in SSL_CERT_FILE",
)
ACCOUNT_HINT = (
    "put the account of that host into ~/.netrc, or correct it in the address; for an index called NAME, uv also reads"
    " UV_INDEX_NAME_USERNAME and UV_INDEX_NAME_PASSWORD"
)
_NO_CONNECTION = re.compile(
    r"tunnel|\(Connect\)|connect error|[Cc]onnection refused|dns error|failed to lookup|timed out|\b407 Proxy"
)


def tls_fault(text: str) -> TLSFault | None:
    return next((fault for fault in (*_FAULTS, UNTRUSTED) if fault.pattern.search(text)), None)


def proxy_hint(server: str) -> str:
    return (
        "correct HTTP_PROXY or HTTPS_PROXY, or the proxy in .condarc or pip.conf, with the proxy's account if it wants"
        f" one (special characters as %40), or name the host of {server} in NO_PROXY"
    )


def network_hint(text: str, server: str, proxy: str) -> str:
    """What to do about a server that cannot be reached, perhaps through a proxy, as a message says."""
    if fault := tls_fault(text):
        return fault.hint
    return proxy_hint(server) if proxy and _NO_CONNECTION.search(text) else "check the address and the network"


def last_cause(text: str) -> str:
    """The last link of a chain of causes, as the conda engine writes it, on one line."""
    return one_line(text.rpartition("Caused by: ")[2])


def through(proxy: str) -> str:
    return f" through the proxy {proxy}" if proxy else ""


def proxy_of(url: str, variables: Mapping[str, str] | None = None) -> str:
    """The proxy that the environment names for an address, without secrets; ``""`` if there is none."""
    from requests.utils import should_bypass_proxies  # with HTTP and TLS, which most commands do not need

    variables = os.environ if variables is None else variables
    parts = urlsplit(url)
    if not parts.hostname:
        return ""
    proxy, excluded = (
        next((variables[name] for stem in stems for name in (stem, stem.upper()) if variables.get(name)), "")
        for stems in ((f"{parts.scheme}_proxy", "all_proxy"), ("no_proxy",))
    )
    bypassed = bool(excluded) and should_bypass_proxies(url, excluded)
    return "" if bypassed else redact("".join(proxy.split()))  # a blank ends an address in a text
