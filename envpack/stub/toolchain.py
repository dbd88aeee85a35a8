"""The programs that build a stub: CMake and Ninja from their wheels, and a C++ compiler."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from envpack.environment.isolation import clean_environment
from envpack.errors import StubError
from envpack.process import run

ToolchainName = Literal["auto", "system", "zig"]

# A stub compiled by zig runs from this glibc on; the server's oldest images have 2.31.
_ZIG_GLIBC = "2.28"


@dataclass(frozen=True)
class Toolchain:
    """What CMake is told.

    Attributes:
        name: ``"system"`` or ``"zig"``.
        compiler: the C++ compiler and its fixed arguments.
        identity: first line that the compiler says of itself; part of the cache key.
    """

    name: str
    compiler: tuple[str, ...]
    identity: str


def find_toolchain(wanted: ToolchainName = "auto") -> Toolchain:
    """The compiler of this machine, or zig's from its wheel; ``auto`` takes the first that is there.

    Raises:
        StubError: there is none (``no-compiler``).
    """
    found = None
    if wanted in ("auto", "system"):
        found = _system()
    if found is None and wanted in ("auto", "zig"):
        found = _zig()
    if found is None:
        missing = {
            "auto": "no C++ compiler, and no ziglang wheel",
            "system": "no C++ compiler on this machine",
            "zig": "the ziglang wheel is not installed",
        }[wanted]
        raise StubError(
            missing,
            kind="no-compiler",
            hint=f"`{Path(sys.executable).name} -m pip install ziglang` brings one; or install g++ or clang++",
        )
    return found


def _system() -> Toolchain | None:
    for name in (os.environ.get("CXX"), "c++", "g++", "clang++"):
        program = shutil.which(name) if name else None
        if program:
            return Toolchain("system", (program,), _identity([program, "--version"]))
    return None


def _zig() -> Toolchain | None:
    folder = package_folder("ziglang")
    if folder is None or not (folder / "zig").is_file():
        return None
    zig = str(folder / "zig")
    target = ("-target", f"{platform.machine()}-linux-gnu.{_ZIG_GLIBC}")
    return Toolchain("zig", (zig, "c++", *target), f"zig {_identity([zig, 'version'])} {target[1]}")


def _identity(command: list[str]) -> str:
    said = run(command, env=clean_environment())
    return (said.stdout or said.stderr).partition("\n")[0].strip()


def package_folder(name: str) -> Path | None:
    """Folder of an installed Python package, without importing it; ``None`` if it is not installed."""
    spec = importlib.util.find_spec(name)
    locations = spec.submodule_search_locations if spec else None
    return Path(next(iter(locations))) if locations else None


def required_package_folder(name: str, distribution: str) -> Path:
    """Like `package_folder`, for packages that envpack depends on.

    Raises:
        StubError: it is not installed.
    """
    folder = package_folder(name)
    if folder is None:
        raise StubError(
            f"the Python package {distribution} is missing", kind="broken-install", hint=f"pip install {distribution}"
        )
    return folder


def find_tool(name: str) -> Path:
    """CMake or Ninja: from the wheel beside this interpreter, else from PATH.

    Raises:
        StubError: it is neither here nor there.
    """
    beside = Path(sysconfig.get_path("scripts")) / name
    if beside.is_file():
        return beside
    found = shutil.which(name)
    if found is None:
        raise StubError(f"{name} is missing", kind="broken-install", hint=f"pip install {name}")
    return Path(found)
