"""Reads the facts that preflight compares: about an execution environment, a stub and the host."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from envpack.archive.manifest import archive_metadata_file
from envpack.archive.reading import opened_archive
from envpack.environment.inventory import INVENTORY, parse_inventory
from envpack.environment.store import read_environment
from envpack.settings.releases import Release
from envpack.stub.inspection import inspect_stub
from envpack.support.bounded_reading import opened, read_bytes, read_json, read_text
from envpack.support.elf import needed_glibc, needed_glibcxx, needed_libraries, parse_elf, provided_glibcxx
from envpack.support.errors import InputError, StubError
from envpack.support.placed_files import RELEASE_FILE
from envpack.support.platforms import host_glibc, machine_named, minor_of_libpython, this_machine

if TYPE_CHECKING:
    from elftools.elf.elffile import ELFFile

_LIBSTDCXX = re.compile(r"(?:\./)?lib/libstdc\+\+\.so\.6(?:\.\d+)*")
_NUMPY = re.compile(r"(?:\./)?lib/python3\.\d{1,3}/site-packages/numpy-([^-/]{1,100})\.dist-info/")
_LARGEST_LIBRARY = 256 << 20  # bytes; a real libpython or libstdc++ is much smaller
_VERSION = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})*")


@dataclass(frozen=True)
class EnvironmentFacts:
    """The facts about an execution environment that are relevant to a stub."""

    path: Path  # folder or archive
    python: str  # Python minor version of its libpython, ``""`` if it has none
    machine: str  # machine of that libpython, such as ``"x86_64"``; ``""`` without one
    # The oldest glibc that it runs with: for all files if envpack built the environment, otherwise for libpython.
    glibc: str
    glibcxx: str  # newest symbol version of its own libstdc++, ``""`` if it has none
    # Newest symbol version of libstdc++ that its files require; ``""`` for none, and if envpack did not build the
    # environment, because its files are not inspected.
    needed_glibcxx: str


def read_environment_facts(path: Path) -> EnvironmentFacts:
    """Read the facts of a folder or an archive. An archive is read only as far as necessary."""
    try:
        libraries = _in_folder(path) if path.is_dir() else _in_archive(path)
    except OSError as error:
        what = f"the execution environment cannot be read: {error.strerror or error}"
        fix = "give the folder or the archive of an execution environment"
        raise InputError("environment-unreadable", what, fix, str(path)) from error
    glibc, needed_glibcxx = _recorded(path)
    return EnvironmentFacts(
        path, libraries.python, libraries.machine, glibc or libraries.glibc, libraries.glibcxx, needed_glibcxx
    )


@dataclass
class _Libraries:
    python: str = ""
    machine: str = ""
    glibc: str = ""
    glibcxx: str = ""

    def add(self, name: str, read: Callable[[], BinaryIO | None]) -> None:
        python = _python_of(name)
        if not python and not _LIBSTDCXX.fullmatch(name):
            return
        content = read()
        if content is None:
            return
        # A damaged library is ignored; the parser raises any error for one.
        with contextlib.suppress(Exception):
            self._add(parse_elf(content), python)

    def _add(self, elf: ELFFile, python: str) -> None:
        if python:
            self.machine, self.glibc = machine_named(elf["e_machine"]), needed_glibc(elf)
            self.python = python
        else:
            self.glibcxx = provided_glibcxx(elf) or self.glibcxx

    @property
    def complete(self) -> bool:
        return bool(self.python and self.glibcxx)


def _in_folder(folder: Path) -> _Libraries:
    libraries = _Libraries()
    for file in sorted((folder / "lib").glob("lib*.so*")):
        if file.is_file():
            libraries.add(f"lib/{file.name}", lambda file=file: _library(file))  # type: ignore[misc]
    return libraries


def _library(file: Path) -> BinaryIO | None:
    """The content of a library; None if it is too large to be one."""
    is_large = file.stat().st_size > _LARGEST_LIBRARY
    return None if is_large else io.BytesIO(read_bytes(file, most=_LARGEST_LIBRARY))


def _in_archive(file: Path) -> _Libraries:
    libraries, pending = _Libraries(), None
    with opened_archive(file) as archive:
        for member in archive:
            if member.name == INVENTORY:
                pending = _listed_libraries(archive.text(_LARGEST_LIBRARY))
            elif member.kind in ("file", "program") and member.size <= _LARGEST_LIBRARY:
                libraries.add(member.name, lambda: io.BytesIO(archive.text(_LARGEST_LIBRARY)))
                if pending is not None:
                    pending.discard(member.name)
            if libraries.complete or (pending is not None and not pending):
                break
    return libraries


def archived_numpy(file: Path) -> str:
    """The version of the NumPy in an archive, by the names of its members; ``""`` if it has none or is damaged."""
    with contextlib.suppress(InputError), opened_archive(file) as archive:
        return next((found[1] for member in archive if (found := _NUMPY.match(member.name))), "")
    return ""


def _listed_libraries(inventory: bytes) -> set[str] | None:
    try:
        paths = [entry.path for entry in parse_inventory(inventory) if entry.kind in ("file", "program")]
    except ValueError:
        return None
    return {path for path in paths if _python_of(path) or _LIBSTDCXX.fullmatch(path)}


def _python_of(member: str) -> str:
    folder, _, file = member.removeprefix("./").rpartition("/")
    return minor_of_libpython(file) if folder == "lib" else ""


def _recorded(path: Path) -> tuple[str, str]:
    """The newest glibc and GLIBCXX that any file requires, from envpack's metadata; empty without metadata."""
    environment = read_environment(path) if path.is_dir() else None
    if environment:
        return _version(environment.glibc), _version(environment.glibcxx)
    try:
        metadata = read_json(archive_metadata_file(path))
        return _version(metadata.get("glibc")), _version(metadata.get("glibcxx"))
    except (OSError, ValueError, AttributeError):
        return "", ""


def _version(recorded: object) -> str:
    return recorded if isinstance(recorded, str) and _VERSION.fullmatch(recorded) else ""


@dataclass(frozen=True, kw_only=True)
class StubRequirements:
    """What a stub requires of an environment and a host."""

    path: Path
    machine: str  # such as "x86_64"
    python: str  # Python minor version that it embeds
    glibc: str  # the oldest glibc that it runs with
    glibcxx: str  # newest symbol version of libstdc++ that it requires, "" for none
    # ABI epochs that it supports, see `Release.stub_abi`; empty if unknown, as for stubs that envpack did not compile
    epochs: tuple[str, ...]
    release_file: str  # release in the release file beside it, "" without that file


def read_stub_requirements(path: Path) -> StubRequirements:
    """Read a stub and the release file beside it, without running the stub."""
    release_file = _first_line(path.with_name(RELEASE_FILE))
    try:
        stub = inspect_stub(path)
    except StubError as error:
        return _read_other_stub(path, release_file, error)
    return StubRequirements(
        path=path,
        machine=stub.machine,
        python=stub.python,
        glibc=stub.glibc,
        glibcxx="",
        epochs=stub.epochs,
        release_file=release_file,
    )


def _read_other_stub(path: Path, release_file: str, error: StubError) -> StubRequirements:
    """Requirements of a stub that envpack did not compile; raises ``error`` if it is not a stub."""
    if not path.is_file():
        raise error
    try:
        with opened(path) as file:
            elf = parse_elf(file)
            pythons = [minor for name in needed_libraries(elf) if (minor := minor_of_libpython(name))]
            if pythons:
                machine = machine_named(elf["e_machine"])
                return StubRequirements(
                    path=path,
                    machine=machine,
                    python=pythons[0],
                    glibc=needed_glibc(elf),
                    glibcxx=needed_glibcxx(elf),
                    epochs=(),
                    release_file=release_file,
                )
    except Exception:  # the parser raises any exception for a damaged file
        raise error from None
    raise error


def _first_line(file: Path) -> str:
    try:
        return next(iter(read_text(file, errors="replace").splitlines()), "").rstrip()
    except OSError:
        return ""


@dataclass(frozen=True)
class Host:
    """A system that a server runs in."""

    name: str  # its name in messages
    glibc: str  # version of its C library, ``""`` if unknown
    glibcxx: str  # newest symbol version of its libstdc++, ``""`` if unknown
    machine: str  # such as ``"x86_64"``; ``""`` if unknown, as for a multi-platform image


def image_host(release: Release) -> Host:
    return Host(f"the image of Triton {release.name}", release.glibc, release.glibcxx, "")


def this_host() -> Host:
    """The system that this process runs in, without the version of its libstdc++."""
    return Host("this machine", host_glibc(), "", this_machine())
