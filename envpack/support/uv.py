"""Runs of uv: isolated from the user's Python settings, without secrets on the command line."""

from __future__ import annotations

import configparser
import contextlib
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from envpack.support.bounded_reading import first_endless, read_text
from envpack.support.errors import EnvironmentBuildError
from envpack.support.installation import repair_command
from envpack.support.processes import CompletedProcess, clean_environment, how_ended, run
from envpack.support.redaction import ENCODING_HINT, is_readable, public_url, redact
from envpack.support.temp_dirs import temp_dir

_MOST_BYTES = 1 << 20
_SECTIONS = ("global", "download", "install")
_NAMES = ("index-url", "extra-index-url", "find-links", "no-index", "trusted-host", "cert", "client-cert", "proxy")
_REMOTE = ("http://", "https://")
_HOST = re.compile(r"[\w.-]+(?::\d+)?")  # uv ends with an error for others, such as addresses
_OWN_SETTINGS = ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_INDEX", "UV_EXTRA_INDEX_URL")
_OTHER_SOURCES = ("UV_FIND_LINKS", "UV_INDEX_STRATEGY")


def index_settings() -> list[str]:
    """What the user's settings say of where packages come from, without secrets."""
    variables = clean_environment() | pip_indexes()
    named = [f"{name}={variables[name]}" for name in (*_OWN_SETTINGS, *_OTHER_SOURCES) if variables.get(name)]
    return [public_url(text) for text in (*named, *no_index(), *_own_indexes(os.environ))]


def pip_indexes(host: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The indexes of pip's settings and the way to them, under uv's names; nothing if uv has indexes of its own.

    Folders of this machine are left out beside an index: locks would name files that no other machine has.
    """
    settings = _pip_settings(host)
    default, others, links = (settings.get(name, "") for name in ("index-url", "extra-index-url", "find-links"))
    home, files = host.get("HOME", "~"), (settings.get(name, "") for name in ("cert", "client-cert"))
    certificates, account = (f"{home}{file[1:]}" if file.startswith("~/") else file for file in files)
    found = {
        "UV_DEFAULT_INDEX": default if default.startswith((*_REMOTE, "file://", "/")) else "",
        "UV_INDEX": " ".join(address for address in others.split() if address.startswith(_REMOTE)),
        "UV_FIND_LINKS": ",".join(
            address
            for address in links.split()
            if address.startswith(_REMOTE) or _is_true(settings.get("no-index", ""))
        ),
        "UV_INSECURE_HOST": " ".join(filter(_HOST.fullmatch, settings.get("trusted-host", "").split())),
        "SSL_CERT_FILE": certificates,
        "SSL_CLIENT_CERT": account,
        "HTTP_PROXY": settings.get("proxy", ""),
        "HTTPS_PROXY": settings.get("proxy", ""),
    }
    return {name: value for name, value in found.items() if value and not host.get(name)}


def no_index(host: Mapping[str, str] = os.environ) -> list[str]:
    """The option of uv for pip's setting that no index is used; it has no variable."""
    return ["--no-index"] if _is_true(_pip_settings(host).get("no-index", "")) else []


def _pip_settings(host: Mapping[str, str]) -> dict[str, str]:
    """What pip's variables and files say of packages; nothing if uv has indexes of its own."""
    if any(host.get(name) for name in _OWN_SETTINGS) or _own_indexes(host):
        return {}
    settings: dict[str, str] = {}
    for file in _files(host):
        settings |= _read(file)
    named = {name: host.get(f"PIP_{name.upper().replace('-', '_')}", "") for name in _NAMES}
    return settings | {name: value for name, value in named.items() if value}


def _is_true(value: str) -> bool:
    return value.lower() in ("1", "true", "yes", "on", "t", "y")


def _files(host: Mapping[str, str]) -> Iterator[Path]:
    named = host.get("PIP_CONFIG_FILE")
    if named == os.devnull:
        return
    home = Path(host.get("HOME", "/nonexistent"))
    for folder in host.get("XDG_CONFIG_DIRS", "/etc/xdg").split(":"):
        yield Path(folder, "pip/pip.conf")
    yield Path("/etc/pip.conf")
    yield home / ".pip/pip.conf"
    yield Path(host.get("XDG_CONFIG_HOME") or home / ".config", "pip/pip.conf")
    yield Path(sys.prefix, "pip.conf")
    if named:
        yield Path(named)


def _read(file: Path) -> dict[str, str]:
    parser = configparser.RawConfigParser(strict=False)
    try:
        parser.read_string(read_text(file, most=_MOST_BYTES))
    except (OSError, ValueError, configparser.Error):  # pip reports it
        return {}
    found: dict[str, str] = {}
    for section in _SECTIONS:
        if parser.has_section(section):
            found |= {key.replace("_", "-"): value for key, value in parser.items(section)}
    return found


def _own_indexes(host: Mapping[str, str]) -> list[str]:
    """The texts of uv's configuration files that name indexes, so that those of pip are not meant for it."""
    home = Path(host.get("HOME", "/nonexistent"))
    own = Path(host.get("XDG_CONFIG_HOME") or home / ".config", "uv/uv.toml")
    found = []
    for file in (Path(host.get("UV_CONFIG_FILE") or own), Path("/etc/uv/uv.toml")):
        with contextlib.suppress(OSError, ValueError):
            found.append(read_text(file, most=_MOST_BYTES))
    return [text for text in found if "index" in text]


NO_VARIABLES: Mapping[str, str] = {}
_NO_PROJECT = Path("/")  # working folder of uv, so that it reads no project's settings


def run_uv(
    arguments: Sequence[str | Path],  # for uv, without secrets
    *,
    variables: Mapping[str, str] = NO_VARIABLES,  # added to its environment; may contain secrets
    timeout: float | None = None,  # seconds
    may_fetch_python: bool = False,  # whether uv may download an interpreter, as the user's settings of uv allow it
) -> CompletedProcess:
    """Run uv to its end; returns the run, with passwords removed from its output."""
    # uv never removes its lock files from the temporary folder, so it gets a folder that is removed.
    with temp_dir("uv") as folder:
        own = {"TMPDIR": str(folder), "UV_PREVIEW_FEATURES": "pylock"}
        if not may_fetch_python:
            own["UV_PYTHON_DOWNLOADS"] = "never"
        environment = clean_environment() | pip_indexes() | dict(variables) | own
        _check_settings(environment)
        command = [_uv(), *arguments, "--no-progress", "--color", "never"]
        completed = run(command, env=environment, cwd=_NO_PROJECT, timeout=timeout)
    if completed.returncode < 0:  # its output then ends anywhere, and would be read as another cause
        what = f"uv ended {how_ended(completed.returncode)}"
        failed = EnvironmentBuildError("pip-failed", what, "repeat the command", details=completed.last_lines())
        raise completed.refused_by_system(Path(tempfile.gettempdir())) or failed
    return CompletedProcess(completed.returncode, redact(completed.stdout), redact(completed.stderr))


def _check_settings(environment: Mapping[str, str]) -> None:
    """Refuse addresses that give a secret away, and no files where uv reads its settings: it would wait for the end."""
    for name in (*_OWN_SETTINGS, "UV_FIND_LINKS"):
        if not all(map(is_readable, re.findall(r"https?://[^\s,]+", environment.get(name, "")))):
            what = f"an address in {name}, or in what pip has for it, cannot be read"
            raise EnvironmentBuildError("pip-failed", what, ENCODING_HINT)
    home = Path(environment.get("HOME", "/nonexistent"))
    config = Path(environment.get("XDG_CONFIG_HOME") or home / ".config", "uv/uv.toml")
    data = Path(environment.get("XDG_DATA_HOME") or home / ".local/share", "uv/credentials/credentials.toml")
    settings = Path(environment.get("UV_CONFIG_FILE") or config)
    if environment.get("UV_CONFIG_FILE") and not settings.exists():
        what = "there is no such file, which UV_CONFIG_FILE names"
        raise EnvironmentBuildError("pip-failed", what, "correct the variable, or unset it", str(settings))
    netrc = Path(environment.get("NETRC") or home / ".netrc")
    if endless := first_endless([settings, Path("/etc/uv/uv.toml"), netrc, data]):
        what = "uv cannot read a file of its settings or credentials: it is a pipe or a device"
        raise EnvironmentBuildError("pip-failed", what, "put a file there, or remove it", str(endless))


def _uv() -> str:
    from uv import find_uv_bin

    try:
        return os.fspath(find_uv_bin())
    except FileNotFoundError as error:
        raise EnvironmentBuildError("uv-missing", "uv is not installed", repair_command()) from error
