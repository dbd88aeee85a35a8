"""Which certificate authorities TLS trusts: those that the user names, else those of the system."""

from __future__ import annotations

import contextlib
import glob
import os
from collections.abc import Mapping
from pathlib import Path

from envpack.support.bounded_reading import read_bytes
from envpack.support.errors import InputError

# Where distributions keep all trusted authorities in one file: Debian, Fedora, RHEL, openSUSE, Alpine.
_BUNDLES = (
    Path("/etc/ssl/certs/ca-certificates.crt"),
    Path("/etc/pki/tls/certs/ca-bundle.crt"),
    Path("/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem"),
    Path("/etc/ssl/ca-bundle.pem"),
    Path("/etc/ssl/cert.pem"),
)
# Variables by which users choose certificates themselves, and those of pip, conda and curl, which may name a folder.
_CHOSEN = ("SSL_CERT_FILE", "SSL_CERT_DIR")
_OF_REQUESTS = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")


def trusted_certificates(host: Mapping[str, str] | None = None) -> str:
    """The file with the authorities to trust: the user's, else the system's; ``""`` for a library's own list."""
    host = os.environ if host is None else host
    if any(host.get(name) for name in _CHOSEN):
        return host.get("SSL_CERT_FILE", "")
    named = (Path(host[name]) for name in _OF_REQUESTS if host.get(name))
    return next((str(bundle) for bundle in (*named, *_BUNDLES) if _has_content(bundle)), "")


def verification_setting() -> str | bool:
    """The argument ``verify`` of the library requests, whose own authorities it replaces."""
    named = next(filter(None, map(os.environ.get, (*_OF_REQUESTS, *_CHOSEN))), "")
    named = named.partition(os.pathsep)[0]  # of several folders in SSL_CERT_DIR, the library takes one
    check_authorities({"SSL_CERT_FILE": named, "SSL_CERT_DIR": named})
    return named or trusted_certificates() or True


def check_authorities(environment: Mapping[str, str]) -> None:
    """Refuse files and folders of authorities without a certificate: TLS libraries fail then, and name no file."""
    file, folders = environment.get("SSL_CERT_FILE", ""), environment.get("SSL_CERT_DIR", "")
    listed = (glob.glob("*", root_dir=folder) for folder in folders.split(os.pathsep) if folder)  # noqa: PTH207 - may raise
    if (file or folders) and not _has_certificate(Path(file)) and not any(listed):
        what = "the authorities to trust cannot be read: there is no such file, or no certificate in PEM format in it"
        fix = (
            "correct the variable that names it, such as SSL_CERT_FILE or PIP_CERT, or ssl_verify of .condarc; `openssl"
            " x509 -inform der -in FILE -out FILE.pem` converts a certificate"
        )
        raise InputError("bad-certificates", what, fix, file or folders)


def _has_certificate(file: Path) -> bool:
    try:
        return b"-----BEGIN CERTIFICATE-----" in read_bytes(file)
    except OSError:
        return False


def _has_content(bundle: Path) -> bool:
    with contextlib.suppress(OSError):  # in a folder that this user may not enter
        return bundle.is_file() and bundle.stat().st_size > 0
    return False
