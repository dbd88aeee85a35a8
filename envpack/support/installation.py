"""How this copy of envpack was installed, and the command that adds an extra to it."""

from __future__ import annotations

import functools
import importlib.util
import shlex
import shutil
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import unquote, urlsplit

from envpack.support.bounded_reading import parse_json

DISTRIBUTION = "triton-envpack"

Installer = Literal["pip", "uv pip", "uv tool", "pipx"]


@dataclass(frozen=True)
class Installation:
    """One installed copy.

    Attributes:
        installer: the program that can change it.
        python: the interpreter that it runs with.
        source: the folder or file that it was installed from; ``None`` for an index.
        editable: whether ``source`` is used in place.
    """

    installer: Installer
    python: str
    source: Path | None = None
    editable: bool = False

    def add(self, *extras: str) -> str:
        """The command that installs extras into this copy."""
        return self._command(f"{self.source or DISTRIBUTION}[{','.join(extras)}]")

    def repair(self) -> str:
        """The command that installs this copy and what it depends on once more."""
        return self._command(str(self.source or DISTRIBUTION), again=True)

    def _command(self, requirement: str, *, again: bool = False) -> str:
        """`uv tool` and pipx replace the whole installation, so the options differ."""
        words = {
            "pip": [self.python, "-m", "pip", "install", *(["--force-reinstall"] if again else [])],
            "uv pip": [_uv(), "pip", "install", "--python", self.python, *(["--reinstall"] if again else [])],
            "uv tool": ["uv", "tool", "install", *(["--reinstall"] if again else [])],
            "pipx": ["pipx", "install", "--force"],
        }[self.installer]
        return shlex.join([*words, *(["--editable"] if self.editable else []), requirement])


def install_command(*extras: str) -> str:
    """The command that adds extras to the copy of envpack that runs: ``uv tool install 'triton-envpack[all]'``."""
    return this_installation().add(*extras)


def repair_command() -> str:
    """The command that repairs the copy of envpack that runs."""
    return this_installation().repair()


@functools.cache
def this_installation() -> Installation:
    """The copy that runs."""
    return Installation(_installer(Path(sys.prefix)), sys.executable, *_source())


def _installer(prefix: Path) -> Installer:
    """Both tools leave a file in the virtual environments that they own."""
    if (prefix / "uv-receipt.toml").is_file():
        return "uv tool"
    if (prefix / "pipx_metadata.json").is_file():
        return "pipx"
    return "pip" if importlib.util.find_spec("pip") else "uv pip"


def _source() -> tuple[Path | None, bool]:
    """The local folder or file of the installation, and whether it is editable (PEP 610)."""
    import importlib.metadata

    try:
        recorded = importlib.metadata.distribution(DISTRIBUTION).read_text("direct_url.json")
        origin = parse_json(recorded or "{}")
        parts = urlsplit(origin.get("url", ""))
        editable = bool(origin.get("dir_info", {}).get("editable"))
    except (importlib.metadata.PackageNotFoundError, ValueError, TypeError, AttributeError):
        return None, False
    source = Path(unquote(parts.path))
    return (source, editable) if parts.scheme == "file" and source.exists() else (None, False)


def _uv() -> str:
    """The uv of the user, else the one that envpack depends on."""
    return "uv" if shutil.which("uv") else str(Path(sysconfig.get_path("scripts")) / "uv")
