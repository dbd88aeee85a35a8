"""How this copy of envpack was installed, what was installed with it, and the command that adds something to it."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
import re
import shlex
import shutil
import site
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import unquote, urlsplit

from envpack.support.bounded_reading import parse_json, parse_toml, read_json, read_text
from envpack.support.errors import StorageError

DISTRIBUTION = "triton-envpack"

Installer = Literal["pip", "uv pip", "uv tool", "pipx"]


@dataclass(frozen=True)
class Installation:
    """One installed copy."""

    installer: Installer  # the program that can change it
    python: str  # the interpreter that it runs with
    source: str = ""  # the folder or file that it was installed from, or an address; "" for an index
    editable: bool = False  # whether source is used in place
    extras: tuple[str, ...] = ()  # that it has, of an installer that replaces the whole installation
    options: tuple[str, ...] = ()  # without which pip would not install into the folder that this copy lies in

    def add(self, *extras: str) -> str:
        """The command that installs extras into this copy."""
        return self._command(self._requirement(extras))

    def repair(self) -> str:
        """The command that installs this copy and what it depends on once more."""
        return self._command(self._requirement(()), again=True)

    def add_beside(self, *words: str) -> str:
        """The command that installs other packages for the interpreter that this copy runs with."""
        if self.installer == "pipx":
            return shlex.join(["pipx", "runpip", DISTRIBUTION, "install", *words])
        if self.installer == "pip":
            return shlex.join([self.python, "-m", "pip", "install", *self.options, *words])
        return shlex.join([_uv(), "pip", "install", "--python", self.python, *words])

    def _requirement(self, added: tuple[str, ...]) -> str:
        every = dict.fromkeys((*self.extras, *added))
        extras = f"[{','.join(every)}]" if every else ""
        if "://" in self.source:
            return f"{DISTRIBUTION}{extras} @ {self.source}"
        return f"{self.source or DISTRIBUTION}{extras}"

    def _command(self, requirement: str, *, again: bool = False) -> str:
        """`uv tool` and pipx replace the whole installation, so the options differ."""
        words = {
            "pip": [self.python, "-m", "pip", "install", *self.options, *(["--force-reinstall"] if again else [])],
            "uv pip": [_uv(), "pip", "install", "--python", self.python, *(["--reinstall"] if again else [])],
            "uv tool": ["uv", "tool", "install", *(["--reinstall"] if again else [])],
            "pipx": ["pipx", "install", "--force"],
        }[self.installer]
        return shlex.join([*words, *(["--editable"] if self.editable else []), requirement])


def install_command(*extras: str) -> str:
    return this_installation().add(*extras)


def install_beside(*words: str) -> str:
    return this_installation().add_beside(*words)


def repair_command() -> str:
    return this_installation().repair()


def wrong_package(error: BaseException) -> StorageError | None:
    """What an unexpected error may come from: a package that envpack needs is missing, or of another version."""
    import importlib.metadata

    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        for unmet in filter(None, map(_unmet, importlib.metadata.requires(DISTRIBUTION) or ())):
            what, fix = unmet
            return StorageError("wrong-package", f"{what} ({type(error).__name__}: {error})", fix)
    return None


def _unmet(text: str) -> tuple[str, str] | None:
    """Why the package that Python finds first does not meet a requirement of envpack's own, and what to do."""
    import importlib.metadata

    try:
        from packaging.requirements import Requirement

        needed = Requirement(text)
        if needed.marker and not needed.marker.evaluate({"extra": ""}):
            return None
        found = importlib.metadata.distribution(needed.name)
    except (ImportError, AttributeError):  # PackageNotFoundError is an ImportError
        return f"envpack needs {text.partition(';')[0].strip()}, which is not installed", repair_command()
    if needed.specifier.contains(found.version, prereleases=True):
        return None
    folder = Path(str(found.locate_file("")))
    what = f"envpack needs {needed.name}{needed.specifier}, and Python finds {found.version} in {folder}"
    if folder in map(Path, os.environ.get("PYTHONPATH", "").split(os.pathsep)):
        return f"{what} of PYTHONPATH", "run it without that: env -u PYTHONPATH envpack ..."
    return what, repair_command()


@functools.cache
def this_installation() -> Installation:
    prefix = Path(sys.prefix)
    installer = _installer(prefix)
    return Installation(installer, sys.executable, *_source(), _extras(installer, prefix), _options())


_OF_UV, _OF_PIPX = "uv-receipt.toml", "pipx_metadata.json"


def _installer(prefix: Path) -> Installer:
    """Both tools leave a file in the virtual environments that they own."""
    if (prefix / _OF_UV).is_file():
        return "uv tool"
    if (prefix / _OF_PIPX).is_file():
        return "pipx"
    return "pip" if importlib.util.find_spec("pip") else "uv pip"


def _extras(installer: Installer, prefix: Path) -> tuple[str, ...]:
    """The extras that a tool's file records, which the tool would remove if they were not named again."""
    try:
        if installer == "uv tool":
            named = parse_toml(read_text(prefix / _OF_UV))["tool"]["requirements"]
            return tuple(extra for one in named if one["name"] == DISTRIBUTION for extra in one.get("extras", ()))
        if installer == "pipx":
            words = read_json(prefix / _OF_PIPX)["main_package"]["package_or_url"]
            found = re.search(r"\[([\w,. -]+)\]", words)
            return tuple(extra.strip() for extra in found[1].split(",")) if found else ()
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        pass
    return ()


def _options() -> tuple[str, ...]:
    """What pip needs for the user's folder, and for an interpreter that a distribution manages (PEP 668)."""
    if sys.prefix != sys.base_prefix:
        return ()
    managed = Path(sysconfig.get_path("stdlib"), "EXTERNALLY-MANAGED").is_file()
    return (*(["--user"] if _is_users() else []), *(["--break-system-packages"] if managed else []))


def _is_users() -> bool:
    import importlib.metadata

    try:
        place = importlib.metadata.distribution(DISTRIBUTION).locate_file("")
    except importlib.metadata.PackageNotFoundError:
        return False
    return bool(site.ENABLE_USER_SITE) and Path(str(place)) == Path(site.getusersitepackages())


def program_beside(name: str) -> Path | None:
    """A program that a wheel installed beside this copy: in a virtual environment, for the machine, or for the user."""
    users = [sysconfig.get_path("scripts", sysconfig.get_preferred_scheme("user"))] if site.ENABLE_USER_SITE else []
    folders = [Path(sysconfig.get_path("scripts")), *map(Path, users), Path(sys.executable).parent]
    return next((folder / name for folder in folders if (folder / name).is_file()), None)


def _source() -> tuple[str, bool]:
    """Where the installation comes from unless it is an index, and whether it is editable (PEP 610)."""
    import importlib.metadata

    try:
        recorded = importlib.metadata.distribution(DISTRIBUTION).read_text("direct_url.json")
        origin = parse_json(recorded or "{}")
        parts = urlsplit(origin.get("url", ""))
        editable = bool(origin.get("dir_info", {}).get("editable"))
        if "vcs_info" in origin and parts.scheme != "file":  # pip accepts no file as the address of a requirement
            return f"{origin['vcs_info']['vcs']}+{origin['url']}@{origin['vcs_info']['commit_id']}", False
        if "archive_info" in origin and parts.netloc:
            return origin["url"], False
    except (importlib.metadata.PackageNotFoundError, KeyError, ValueError, TypeError, AttributeError):
        return "", False
    source = Path(unquote(parts.path))
    return (str(source), editable) if parts.scheme == "file" and source.exists() else ("", False)


def _uv() -> str:
    """The uv of the user, else the one that envpack depends on."""
    return "uv" if shutil.which("uv") else str(program_beside("uv") or Path(sysconfig.get_path("scripts")) / "uv")
