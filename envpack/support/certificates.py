"""The system's store of certificates, in which companies put the authority of their proxies and servers.

Libraries bring lists of public authorities and ignore that store, unless a variable or an option names it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

UNTRUSTED_HINT = (
    "add the authority that signed it to those of this machine (update-ca-certificates),"
    " or name its file in SSL_CERT_FILE"
)
# Where distributions keep all trusted authorities in one file: Debian, Fedora, RHEL, openSUSE, Alpine.
_BUNDLES = (
    Path("/etc/ssl/certs/ca-certificates.crt"),
    Path("/etc/pki/tls/certs/ca-bundle.crt"),
    Path("/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem"),
    Path("/etc/ssl/ca-bundle.pem"),
    Path("/etc/ssl/cert.pem"),
)
# Variables by which users choose certificates themselves.
_CHOSEN = ("SSL_CERT_FILE", "SSL_CERT_DIR", "UV_SYSTEM_CERTS", "UV_NATIVE_TLS")


def trusted_certificates(host: Mapping[str, str] | None = None) -> str:
    """The file with the authorities to trust: the user's, else the system's; ``""`` for a library's own list.

    Args:
        host: environment variables, by default those of this process.
    """
    host = os.environ if host is None else host
    if any(host.get(name) for name in _CHOSEN):
        return host.get("SSL_CERT_FILE", "")
    return next((str(bundle) for bundle in _BUNDLES if _has_content(bundle)), "")


def verification_setting() -> str | bool:
    """The argument ``verify`` of the library requests, which has authorities of its own unless it is told others."""
    named = os.environ.get("REQUESTS_CA_BUNDLE") or os.environ.get("CURL_CA_BUNDLE")
    return named or trusted_certificates() or True


def _has_content(bundle: Path) -> bool:
    try:
        return bundle.stat().st_size > 0
    except OSError:
        return False
