"""Probes of services: conda channels, the package index, an installed Triton server, a container daemon."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from urllib.parse import unquote, urlsplit

from envpack.conda.engine import all_credentials
from envpack.conda.settings import Credentials, read_conda_settings
from envpack.lock.resolve import LOCAL_CHANNEL
from envpack.server.daemon import Daemon, daemon_errors, find_daemon
from envpack.server.launch import find_server
from envpack.settings.project import Project
from envpack.support.certificates import verification_setting
from envpack.support.errors import ServerError
from envpack.support.processes import clean_environment
from envpack.support.redaction import public_url
from envpack.support.temp_dirs import temp_dir
from envpack.support.uv import no_index, pip_indexes, run_uv

_RESPONSE_SECONDS = 3.0
_CREDENTIALS_NEEDED = {401, 403, 407}
_NO_HEAD = {405, 501}  # from servers that answer only GET, which is all that installers send
_INDEX_NAME = re.compile(r"(?:(?P<name>[A-Za-z0-9._-]+)=)?(?P<address>.+)")
_FALSE = {"", "0", "false", "no"}
_CDI_FOLDERS = (Path("/etc/cdi"), Path("/var/run/cdi"))


def channels(project: Project) -> Iterator[Observation]:
    """The channels of the project, else of the user's conda configuration; without any, the local channel."""
    settings = read_conda_settings()
    names = [name for name in project.of().channels or settings.channels if name != LOCAL_CHANNEL]
    if not names:
        what = "none configured; Python packages are built from the interpreters of this machine"
        yield Observation("channels", "ok", what)
        return
    if is_set("CONDA_OFFLINE"):
        yield Observation("channels", "ok", "CONDA_OFFLINE is set; not checked")
        return
    found = settings.resolve(names)
    credentials = all_credentials(found.credentials, os.environ)
    variables = clean_environment() | dict(settings.variables)
    with ThreadPoolExecutor(len(found.urls)) as pool:
        reasons = list(pool.map(lambda url: _channel_fails(url, credentials, variables), found.urls))
    for url, reason in zip(found.urls, reasons, strict=True):
        fix = "check address, network and proxy; the channel `local` works without a network"
        yield Observation("channel", "warn" if reason else "ok", f"{url}{reason}", fix if reason else "")


def _channel_fails(url: str, credentials: Credentials, variables: Mapping[str, str]) -> str:
    """Why a channel is not usable with the user's settings for conda, as a suffix; ``""`` if it is."""
    if url.startswith("file:"):
        return unreachable(url)  # it may be empty yet
    parts = urlsplit(f"{url.rstrip('/')}/noarch/repodata.json")
    options: dict[str, Any] = {}
    match credentials.get(parts.netloc.lower().removesuffix(f":{parts.port}")):
        case {"CondaToken": str(token)}:
            parts = parts._replace(path=f"/t/{token}{parts.path}")
        case {"BasicHTTP": {"username": str(user), "password": str(password)}}:
            options["auth"] = (user, password)
        case {"BearerToken": str(token)}:
            options["headers"] = {"Authorization": f"Bearer {token}"}
    return unreachable(parts.geturl(), **options, **_way_to(url, variables))


def _way_to(url: str, variables: Mapping[str, str]) -> dict[str, Any]:
    """Options for a request, with the proxies and the certificates that variables name."""
    from requests.utils import should_bypass_proxies

    options: dict[str, Any] = {}
    proxies = {scheme: variables.get(f"{scheme.upper()}_PROXY") for scheme in ("http", "https")}
    if any(proxies.values()) and not should_bypass_proxies(url, no_proxy=None):
        options["proxies"] = {scheme: address for scheme, address in proxies.items() if address}
    if certificates := variables.get("SSL_CERT_FILE"):
        options["verify"] = certificates
    return options


def index(project: Project) -> Iterator[Observation]:  # noqa: ARG001 - all probes are called alike
    variables = clean_environment() | pip_indexes()
    if is_set("UV_OFFLINE") or no_index():
        yield Observation("index", "ok", "UV_OFFLINE, or no-index of pip, is set; not checked")
        return
    url, options = _named_index(variables)
    page = url if url.startswith("file:") else f"{url.rstrip('/')}/numpy/"
    reason = unreachable(page, **options, **_way_to(page, variables)) if url else _default_index_fails()
    fix = "check network and proxy, or set UV_INDEX_URL to a reachable index"
    name = public_url(url) if url else "the default index of uv"
    yield Observation("index", "warn" if reason else "ok", f"{name}{reason}", fix if reason else "")


def _named_index(variables: Mapping[str, str]) -> tuple[str, dict[str, Any]]:
    """The address of the index that a variable names, and options for the request; ``""`` if none does.

    It can be a path, and UV_DEFAULT_INDEX can give it a name, ``corp=https://…``, to which variables give an account.
    """
    found = _INDEX_NAME.fullmatch(variables.get("UV_DEFAULT_INDEX") or variables.get("UV_INDEX_URL", ""))
    if found is None:
        return "", {}
    url = found["address"] if "://" in found["address"] else Path("/", found["address"]).as_uri()
    name = re.sub(r"[^A-Z0-9]", "_", (found["name"] or "").upper())
    account = tuple(variables.get(f"UV_INDEX_{name}_{part}", "") for part in ("USERNAME", "PASSWORD"))
    return url, {"auth": account} if name and any(account) else {}


def _default_index_fails() -> str:
    """Why uv cannot use its default index, as a suffix; ``""`` if it can. Only uv knows that index's address."""
    bounds = {"UV_HTTP_TIMEOUT": f"{_RESPONSE_SECONDS:.0f}", "UV_HTTP_RETRIES": "0", "UV_NO_CACHE": "1"}
    with temp_dir("doctor") as folder:
        requirements = folder / "requirements.in"
        requirements.write_text("numpy\n", encoding="utf-8")
        # With a Python, since uv would start those on PATH, of which one may hang.
        words: list[str | Path] = ["pip", "compile", "--python", sys.executable, "--no-deps", "--quiet", requirements]
        completed = run_uv(words, variables=bounds)
    return ": unreachable" if completed.returncode else ""


def is_set(name: str) -> bool:
    """Whether a variable of the environment has a value other than no."""
    return os.environ.get(name, "").lower() not in _FALSE


def unreachable(url: str, **options: Any) -> str:
    """Why an address is not usable, as a suffix to it; ``""`` if it is. Waits for a few seconds at most."""
    import requests

    try:
        parts = urlsplit(url)
    except ValueError:
        return ": invalid address"
    if parts.scheme == "file":
        return "" if Path(unquote(parts.path)).exists() else ": no such file or folder"
    try:
        options = {"verify": verification_setting(), **options}
        response = requests.head(url, timeout=_RESPONSE_SECONDS, allow_redirects=True, **options)
        if response.status_code in _NO_HEAD:
            with requests.get(url, timeout=_RESPONSE_SECONDS, stream=True, **options) as response:
                pass  # its content does not matter
    except requests.RequestException as error:
        return f": {_in_words(error)}"
    except (OSError, ValueError) as error:  # of the file with certificates, and of names that no host can have
        return f": {error}"
    if response.status_code in _CREDENTIALS_NEEDED:
        return f": it requires credentials ({response.status_code})"
    return f": HTTP status {response.status_code}" if response.status_code >= 400 else ""


def _in_words(error: Exception) -> str:
    import requests

    for kind, words in (
        (requests.exceptions.ProxyError, "rejected by the proxy"),
        (requests.exceptions.SSLError, "its certificate is not trusted"),
        (requests.exceptions.Timeout, f"no response within {_RESPONSE_SECONDS:g} s"),
        (requests.exceptions.ConnectionError, "unreachable"),
    ):
        if isinstance(error, kind):
            return words
    return "invalid address"


def server(project: Project) -> Iterator[Observation]:  # noqa: ARG001 - all probes are called alike
    """The server that `envpack verify --runtime process` starts."""
    try:
        found = find_server()
    except ServerError as error:
        yield Observation("tritonserver", "warn", f"{error.message}; servers can run in containers", error.hint)
        return
    release = f"Triton {found.release}" if found.release else "unknown release"
    yield Observation("tritonserver", "ok", f"{release}, {found.executable}")


def containers(project: Project) -> Iterator[Observation]:
    """The container daemon for `envpack verify`, its image and its GPUs."""
    try:
        daemon = find_daemon()
    except ServerError as error:
        what = f"{error.message}; servers run as processes"
        yield Observation("containers", "warn", what, error.hint)
        return
    with contextlib.closing(daemon.client), daemon_errors():
        version, info = daemon.client.version(), daemon.client.info()
        what = f"{daemon.name} {version.get('Version', '?')}, API {version.get('ApiVersion', '?')}, at {daemon.address}"
        yield Observation("containers", "ok", what)
        yield _image(daemon, project.release.image)
        yield _gpus(daemon, info)


def _image(daemon: Daemon, name: str) -> Observation:
    import docker

    try:
        daemon.client.images.get(name)
    except docker.errors.ImageNotFound:
        fix = f"run {daemon.name} pull {name}, or verify with --set pull=true"
        return Observation("image", "warn", f"{name} is not present", fix)
    return Observation("image", "ok", name)


def _gpus(daemon: Daemon, info: dict[str, Any]) -> Observation:
    """Whether containers have access to GPUs. Podman ignores Docker's GPU request without an error."""
    runtimes = sorted(info.get("Runtimes") or {})
    devices = [device.get("ID", "") for device in info.get("DiscoveredDevices") or [] if isinstance(device, dict)]
    specified = [file.name for folder in _CDI_FOLDERS if folder.is_dir() for file in sorted(folder.iterdir())]
    if "nvidia" in runtimes:
        return Observation("GPUs in containers", "ok", f"runtime nvidia, of {', '.join(runtimes)}")
    nvidia = [name for name in (*devices, *specified) if "nvidia" in name]
    if nvidia:
        return Observation("GPUs in containers", "ok", f"by CDI: {', '.join(nvidia)}")
    what = f"{daemon.name} has no GPU access: runtimes {', '.join(runtimes) or 'unknown'}, no NVIDIA CDI device"
    fix = "install nvidia-container-toolkit, run nvidia-ctk runtime configure --runtime=docker, restart Docker"
    return Observation("GPUs in containers", "warn", what, fix)


State = Literal["ok", "warn", "missing"]


@dataclass(frozen=True)
class Observation:
    """A property of this machine."""

    name: str  # name of the property, for example "compiler"
    state: State  # "ok"; "warn" if only some uses need it; "missing" if envpack cannot work without it
    what: str  # the finding in a few words
    fix: str = ""  # how to fix it, "" if nothing is wrong
