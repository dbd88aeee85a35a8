"""Environment variables for programs that install or inspect environments.

The user's shell must not change the result of a build, so only the variables listed here are passed on. ``PYTHON*`` and
``PIP_*`` variables never are; the pip settings that select an index are passed to uv under uv's names. Installers trust
the certificates of the system, unless the user chooses others.
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
    """The file with the authorities to trust: the user's, else the system's; ``""`` for a library's own list."""
    host = os.environ if host is None else host
    if any(host.get(name) for name in _CHOSEN):
        return host.get("SSL_CERT_FILE", "")
    return next((str(bundle) for bundle in _BUNDLES if _has_content(bundle)), "")


def verification_setting() -> str | bool:
    """The argument ``verify`` of the library requests, whose own authorities it replaces."""
    named = os.environ.get("REQUESTS_CA_BUNDLE") or os.environ.get("CURL_CA_BUNDLE")
    return named or trusted_certificates() or True


def _has_content(bundle: Path) -> bool:
    try:
        return bundle.stat().st_size > 0
    except OSError:
        return False


_KEPT = {
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "LANG",
    "LANGUAGE",
    "TMPDIR",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "NETRC",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "all_proxy",
    "no_proxy",
    "RATTLER_AUTH_FILE",
    "UV_ASTRAL_MIRROR_URL",
    "UV_CACHE_DIR",
    "UV_CONFIG_FILE",
    "UV_DEFAULT_INDEX",
    "UV_EXCLUDE_NEWER",
    "UV_EXTRA_INDEX_URL",
    "UV_FIND_LINKS",
    "UV_HTTP_CONNECT_TIMEOUT",
    "UV_HTTP_RETRIES",
    "UV_HTTP_TIMEOUT",
    "UV_INSECURE_HOST",
    "UV_INDEX",
    "UV_INDEX_STRATEGY",
    "UV_INDEX_URL",
    "UV_KEYRING_PROVIDER",
    "UV_NATIVE_TLS",
    "UV_NO_INDEX",
    "UV_OFFLINE",
    "UV_PYTHON_CACHE_DIR",
    "UV_PYTHON_DOWNLOADS",
    "UV_PYTHON_DOWNLOADS_JSON_URL",
    "UV_PYTHON_INSTALL_MIRROR",
    "UV_SYSTEM_CERTS",
}
_KEPT_PREFIXES = ("LC_", "XDG_", "UV_INDEX_", "UV_CONCURRENT_")
_DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"

# A pip setting becomes the first of uv's variables, unless one of them is set already.
_PIP_SETTINGS = (
    ("PIP_INDEX_URL", ("UV_DEFAULT_INDEX", "UV_INDEX_URL")),
    ("PIP_EXTRA_INDEX_URL", ("UV_EXTRA_INDEX_URL", "UV_INDEX")),
    ("PIP_CERT", ("SSL_CERT_FILE",)),
)


def clean_environment(host: Mapping[str, str] | None = None) -> dict[str, str]:
    """Variables for installers: the user's network and cache settings, and none that change Python's behaviour."""
    host = os.environ if host is None else host
    kept = {name: value for name, value in host.items() if name in _KEPT or name.startswith(_KEPT_PREFIXES)}
    for pip_name, uv_names in _PIP_SETTINGS:
        if host.get(pip_name) and not any(name in kept for name in uv_names):
            kept[uv_names[0]] = host[pip_name]
    certificates = trusted_certificates(kept)
    if certificates:
        kept["SSL_CERT_FILE"] = certificates
    kept.setdefault("PATH", _DEFAULT_PATH)
    kept["PYTHONNOUSERSITE"] = "1"
    return kept


def users_environment() -> dict[str, str]:
    """All variables, for a program that the user has chosen, such as one that asks a key ring."""
    return dict(os.environ)


def bare_environment() -> dict[str, str]:
    """Variables for probing an interpreter: only PATH, a UTF-8 locale and ``PYTHONNOUSERSITE``."""
    return {"PATH": _DEFAULT_PATH, "LC_ALL": "C.UTF-8", "PYTHONNOUSERSITE": "1"}
