"""The Python and the platform that a stub is compiled for."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from envpack.conda.choice import interpreter_for, interpreter_here
from envpack.settings.pythons import check_minor
from envpack.settings.table import PythonPreference
from envpack.support.bounded_reading import opened
from envpack.support.elf import needed_libraries, parse_elf
from envpack.support.errors import StubError, UsageError
from envpack.support.platforms import (
    PLATFORMS,
    abi_flags,
    is_supported,
    machine_named,
    minor_of_libpython,
    platform_name,
    platform_of_machine,
    this_machine,
)
from envpack.support.progress import SILENT, Progress

_HINT = f"stubs exist for {' and '.join(PLATFORMS)} with glibc; use a Python for one of these"
# Library folders of prefixes: of conda, of Python installations, and of unpacked packages of a distribution.
_LIBRARY_FOLDERS = ("lib", "lib64", "usr/lib/*-linux-gnu", "usr/lib", "usr/lib64")


def machine_of(library: Path) -> str:
    try:
        with opened(library) as file:
            elf = parse_elf(file)
            bits, machine, architecture = elf.elfclass, machine_named(elf["e_machine"]), elf.get_machine_arch()
            needed = needed_libraries(elf)
    except Exception as error:  # the parser raises many kinds of errors for a damaged file
        raise _unusable(library, "is not a readable ELF file") from error
    if bits != 64:
        raise _unusable(library, f"is for a {bits}-bit machine ({architecture})")
    if not is_supported(machine):
        raise _unusable(library, f"is for another machine ({architecture})")
    if any(name == "libc.so" or name.startswith("libc.musl-") for name in needed):
        raise _unusable(library, "was built for musl, the C library of Alpine; Triton's images have glibc")
    return machine


def _unusable(library: Path, why: str) -> StubError:
    return StubError("libpython-unusable", f"this libpython {why}", _HINT, str(library))


@dataclass(frozen=True)
class StubTarget:
    """A Python with headers and library to compile against. It is never run."""

    minor: str  # for example "3.8"
    machine: str  # for example "x86_64"
    include: Path  # folder of Python.h
    library: Path  # libpython3.8.so.1.0

    @property
    def platform(self) -> str:
        """Conda's name of the platform, for example ``"linux-64"``."""
        return platform_of_machine(self.machine)

    @property
    def multiarch_include(self) -> Path | None:
        """The folder in which Debian's common ``pyconfig.h`` looks for the machine's; ``None`` for other Pythons."""
        return self.include.parent if self._multiarch_configuration.is_file() else None

    @property
    def configuration(self) -> Path:
        multiarch = self._multiarch_configuration
        return multiarch if multiarch.is_file() else self.include / "pyconfig.h"

    @property
    def _multiarch_configuration(self) -> Path:
        return self.include.parent / f"{self.machine}-linux-gnu" / self.include.name / "pyconfig.h"


def target_from_interpreter(
    minor: str, *, preference: PythonPreference = "system", fetch: bool = True, progress: Progress = SILENT
) -> StubTarget:
    """The interpreter of a minor version, with headers; see `envpack.conda.choice.interpreter_for`."""
    if fetch:
        found = interpreter_for(minor, preference=preference, headers=True, progress=progress)
    else:
        found = interpreter_here(minor, preference=preference, headers=True)
    if found.library is None:  # interpreter_for() refuses static ones; this is for the type
        raise _without_library(found.executable)
    return _checked(StubTarget(minor, machine_of(found.library), found.include, found.library))


def target_from_prefix(prefix: Path, *, find_headers: Callable[[str], Path] | None = None) -> StubTarget:
    """Find the Python, perhaps of another machine, of an environment, a prefix, or a distribution's packages."""
    libraries = [found for folder in _LIBRARY_FOLDERS for found in sorted(prefix.glob(f"{folder}/libpython3.*.so.1.0"))]
    if not libraries:
        raise _without_library(prefix)
    library = libraries[0]
    minor = minor_of_libpython(library.name)
    check_minor(minor, where=str(library))
    root = prefix / "usr" if library.is_relative_to(prefix / "usr") else prefix
    target = StubTarget(minor, machine_of(library), root / "include" / f"python{minor}{abi_flags(minor)}", library)
    if find_headers and target.machine == this_machine() and not (target.include / "Python.h").is_file():
        target = dataclasses.replace(target, include=find_headers(minor))
    return _checked(target)


def check_platforms(targets: Sequence[StubTarget], platforms: Sequence[str]) -> None:
    """Reject targets for other platforms than the given ones, and platforms without a target."""
    platforms = [platform_name(platform) for platform in platforms]
    for target in targets:
        if target.platform not in platforms:
            what = f"this Python {target.minor} is for {target.platform}, not for {' or '.join(platforms)}"
            fix = "give --prefix, with headers and libpython of a Python for that platform, or another --platform"
            raise UsageError("wrong-platform", what, fix, str(target.library))
    for platform in platforms:
        if all(target.platform != platform for target in targets):
            fix = "give --prefix, with headers and libpython of a Python for that platform"
            raise UsageError("wrong-platform", f"no Python for {platform} to compile against", fix)


def _without_library(where: Path) -> StubError:
    what = "no shared libpython (libpython3.x.so.1.0), which a stub requires"
    fix = "give an environment made by `envpack build`, or a Python that was built with --enable-shared"
    return StubError("libpython-missing", what, fix, str(where))


def _checked(target: StubTarget) -> StubTarget:
    if not (target.include / "Python.h").is_file() or not target.configuration.is_file():
        what = f"the headers of Python {target.minor} are missing"
        fix = f"install them, for example the package libpython{target.minor}-dev"
        raise StubError("headers-missing", what, fix, str(target.include))
    return target
