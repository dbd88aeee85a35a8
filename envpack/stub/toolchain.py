"""Finds the compiler, the tools and the headers that a stub is compiled with."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from envpack.settings.pythons import pybind11_for
from envpack.settings.table import ToolchainName
from envpack.support.elf import version_key
from envpack.support.errors import StubError, UsageError
from envpack.support.folders import real_path
from envpack.support.installation import install_command, program_beside
from envpack.support.platforms import host_glibc, this_machine
from envpack.support.processes import clean_environment, is_no_program, run

_ANSWERING = 60.0  # seconds that a compiler may take to print its version
OTHER_COMPILER = "try the other compiler: --set toolchain=zig, or toolchain=system"

OLDEST_CMAKE = "3.26"
# A stub compiled by zig runs with this glibc or newer, unless the user gives another; the oldest images have 2.31.
DEFAULT_GLIBC = "2.28"
# The first one with memfd_create(), through which a stub loads its Python half.
OLDEST_GLIBC = "2.27"
_GLIBCS = f"give one from {OLDEST_GLIBC} on; Debian 10 has 2.28, Ubuntu 20.04 and Debian 11 have 2.31"


@dataclass(frozen=True)
class Toolchain:
    """A compiler and its settings for CMake."""

    name: str  # "system" or "zig"
    compiler: tuple[str, ...]  # the C++ compiler and its fixed arguments
    identity: str  # first line of the compiler's version output, and its arguments; part of the cache key
    machine: str  # what it compiles for, such as "x86_64"
    glibc: str = ""  # the newest glibc that the compiled stub may require; "" for the one of this machine


def find_toolchain(name: ToolchainName = "auto", *, machine: str = "", glibc: str = "", oldest: str = "") -> Toolchain:
    """The compiler of this machine, or zig; ``auto`` takes the first whose results run with the glibc ``oldest``."""
    check_glibc(glibc)
    machine = machine or this_machine()
    beyond = _beyond_system(machine, glibc)
    if name == "system" and beyond:
        raise UsageError("needs-zig", f"this machine's compiler {beyond}", "use --set toolchain=zig, or auto")
    found = _system() if name != "zig" and not beyond else None
    if name != "system" and (found is None or (name == "auto" and not _named_compiler() and _is_too_new(oldest))):
        found = _zig(machine, glibc or DEFAULT_GLIBC) or found
    if found is None:
        missing = {
            "auto": "no ziglang wheel" if beyond else "no C++ compiler, and no ziglang wheel",
            "system": "no C++ compiler on this machine",
            "zig": "the ziglang wheel is not installed",
        }[name]
        raise StubError("no-compiler", missing, f"install g++ or clang++, or zig: {install_command('compile', 'zig')}")
    return found


def check_glibc(glibc: str) -> None:
    if glibc and not re.fullmatch(r"2\.\d+", glibc):
        raise UsageError("bad-glibc", f"glibc version {glibc!r} is not written like {DEFAULT_GLIBC}", _GLIBCS)
    if glibc and version_key(glibc) < version_key(OLDEST_GLIBC):
        raise UsageError("bad-glibc", f"a stub cannot run with glibc {glibc}", _GLIBCS)


def _beyond_system(machine: str, glibc: str) -> str:
    """Why this machine's compiler does not suffice; ``""`` if it does."""
    if machine != this_machine():
        return f"cannot compile for {machine}"
    return "cannot choose the glibc: what it makes needs one as new as this machine's" if glibc else ""


def _is_too_new(oldest: str) -> bool:
    """Whether what is compiled against this machine's C library cannot run with an older one."""
    renamed = version_key("2.38")  # from which on its headers call strtol() by another name
    return bool(oldest) and version_key(oldest) < renamed <= version_key(host_glibc())


def _system() -> Toolchain | None:
    for words in (_named_compiler(), ["c++"], ["g++"], ["clang++"]):
        program = shutil.which(words[0]) if words else None
        if program:
            compiler = (os.path.abspath(program), *words[1:])  # noqa: PTH100 - its name decides what it is
            identity = " ".join((_identity([*compiler, "--version"]), *words[1:]))
            return Toolchain("system", compiler, identity, this_machine())
    return None


def _named_compiler() -> list[str]:
    try:
        return shlex.split(os.environ.get("CXX", ""))
    except ValueError:  # an open quotation mark
        return []


def _zig(machine: str, glibc: str) -> Toolchain | None:
    folder = package_folder("ziglang")
    if folder is None or not (folder / "zig").is_file():
        return None
    zig = str(folder / "zig")
    target = f"{machine}-linux-gnu.{glibc}"
    # -s: by default zig adds debug information, and builds its C++ runtime once with and once without it.
    # CMake's own checks are linked with one of these too, so one set of flags for everything saves most of a minute.
    compiler = (zig, "c++", "-target", target, "-s")
    return Toolchain("zig", compiler, f"zig {_identity([zig, 'version'])} {target}", machine, glibc)


def _identity(command: list[str]) -> str:
    try:
        result = run(command, env=clean_environment(), timeout=_ANSWERING)
    except OSError as error:  # a script without its interpreter, a program for another machine
        if not is_no_program(error):
            raise
        raise _broken(command[0], str(error.strerror)) from error
    except subprocess.TimeoutExpired as error:
        raise _broken(command[0], f"it does not print its version within {_ANSWERING:g} s") from error
    if result.returncode != 0:
        raise _broken(command[0], f"status {result.returncode}, {result.last_lines(1) or 'no output'}")
    return (result.stdout or result.stderr).partition("\n")[0].strip()


def _broken(program: str, reason: str) -> StubError:
    return StubError("no-compiler", f"{program} does not run: {reason}", f"repair it, or {OTHER_COMPILER}")


def package_folder(name: str) -> Path | None:
    """Folder of an installed Python package, without importing it; ``None`` if it is not installed."""
    spec = importlib.util.find_spec(name)
    locations = spec.submodule_search_locations if spec else None
    return Path(next(iter(locations))) if locations else None


def find_tool(name: str) -> Path:
    """CMake or Ninja: from the wheel beside this interpreter, else from PATH."""
    # The program on PATH of a wheel may be a script of Python, which finds its module only if the user's folder counts.
    binary = (package_folder(name) or Path("/nonexistent")) / "data/bin" / name
    found = binary if binary.is_file() else program_beside(name) or shutil.which(name)
    if found is None:
        raise extra_missing(name)
    return Path(found)


def check_cmake(program: Path) -> None:
    try:
        said = run([program, "--version"], env=clean_environment(), timeout=_ANSWERING).stdout
    except (OSError, subprocess.TimeoutExpired):
        return  # compiling reports it
    found = re.search(r"cmake version (\d+(?:\.\d+)+)", said)
    if found and version_key(found[1]) < version_key(OLDEST_CMAKE):
        raise old_cmake(program, found[1])


def old_cmake(program: Path, version: str) -> StubError:
    what = f"compiling a stub needs CMake {OLDEST_CMAKE} or newer, and {program} is {version}"
    return StubError("extra-missing", what, install_command("compile"))


def extra_missing(what: str) -> StubError:
    fix = install_command("compile")
    return StubError("extra-missing", f"compiling a stub needs {what}, which is not installed", fix)


# The headers with the version of each, below the folders.
PYBIND11_VERSION = "include/pybind11/detail/common.h"
BOOST_VERSION = "include/boost/version.hpp"


def boost_folder() -> Path:
    folder = package_folder("libboost_headers")
    if folder is None:
        raise extra_missing("the Python package libboost-headers")
    return folder


def pybind11_folder(minor: str) -> Path:
    pybind11 = pybind11_for(minor)
    needed = f"the Python package {pybind11.requirement}"
    try:
        installed = importlib.metadata.distribution(pybind11.distribution)
    except importlib.metadata.PackageNotFoundError:
        raise extra_missing(needed) from None
    headers = [file for file in installed.files or () if file.as_posix().endswith(PYBIND11_VERSION)]
    if installed.version != pybind11.version or not headers:
        raise extra_missing(needed)
    return real_path(Path(str(headers[0].locate()))).parents[PYBIND11_VERSION.count("/")]


def header_folders(minor: str) -> list[Path]:
    return [boost_folder(), pybind11_folder(minor)]
