"""Probes of the sources of packages: conda channels and the package index."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import unquote, urlsplit

from envpack.conda import read_conda_settings
from envpack.doctor.observation import Observation
from envpack.lock import LOCAL_CHANNEL
from envpack.project import Project
from envpack.support.isolation import clean_environment
from envpack.support.redaction import public_url

_SECONDS = 3.0
_DEFAULT_INDEX = "https://pypi.org/simple"
_REFUSALS = {401, 403, 407}
_NO = {"", "0", "false", "no"}


def channels(project: Project) -> Iterator[Observation]:
    """The channels of the project, else of the user's conda configuration; without any, the local channel."""
    settings = read_conda_settings()
    names = [name for name in project.channels or settings.channels if name != LOCAL_CHANNEL]
    if not names:
        what = "none configured; Python packages are built from the interpreters of this machine"
        yield Observation("channels", "ok", what)
        return
    if _is_set("CONDA_OFFLINE"):
        yield Observation("channels", "ok", "CONDA_OFFLINE is set; not checked")
        return
    urls = settings.resolve(names).urls
    with ThreadPoolExecutor(len(urls)) as pool:
        reasons = list(pool.map(lambda url: _unreachable(f"{url.rstrip('/')}/noarch/repodata.json"), urls))
    for url, reason in zip(urls, reasons, strict=True):
        fix = "check address, network and proxy; the channel `local` works without a network"
        yield Observation("channel", "warn" if reason else "ok", f"{url}{reason}", fix if reason else "")


def index(project: Project) -> Iterator[Observation]:  # noqa: ARG001 - all probes are called alike
    """The package index."""
    variables = clean_environment()
    if _is_set("UV_OFFLINE") or _is_set("UV_NO_INDEX"):
        yield Observation("index", "ok", "UV_OFFLINE or UV_NO_INDEX is set; not checked")
        return
    url = variables.get("UV_DEFAULT_INDEX") or variables.get("UV_INDEX_URL") or _DEFAULT_INDEX
    reason = _unreachable(f"{url.rstrip('/')}/numpy/")
    fix = "check network and proxy, or set UV_INDEX_URL to a reachable index"
    yield Observation("index", "warn" if reason else "ok", f"{public_url(url)}{reason}", fix if reason else "")


def _is_set(name: str) -> bool:
    return os.environ.get(name, "").lower() not in _NO


def _unreachable(url: str) -> str:
    """Why an address is not usable, as a suffix to it; ``""`` if it is."""
    import requests

    parts = urlsplit(url)
    if parts.scheme == "file":
        place = Path(unquote(parts.path))
        return "" if place.exists() or place.parent.parent.is_dir() else ": no such folder"
    try:
        response = requests.head(url, timeout=_SECONDS, allow_redirects=True, verify=_certificates())
    except requests.RequestException as error:
        return f": {_in_words(error)}"
    if response.status_code in _REFUSALS:
        return f": it requires credentials ({response.status_code})"
    return f": HTTP status {response.status_code}" if response.status_code >= 400 else ""


def _certificates() -> str | bool:
    return os.environ.get("SSL_CERT_FILE") or True


def _in_words(error: Exception) -> str:
    import requests

    for kind, words in (
        (requests.exceptions.ProxyError, "rejected by the proxy"),
        (requests.exceptions.SSLError, "its certificate is not trusted"),
        (requests.exceptions.Timeout, f"no response within {_SECONDS:g} s"),
        (requests.exceptions.ConnectionError, "unreachable"),
    ):
        if isinstance(error, kind):
            return words
    return "invalid address"
