"""What a stub needs, whoever made it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from envpack.repository import RELEASE_FILE
from envpack.stub import inspect_stub, machine_named
from envpack.support.elf import needed_glibc, needed_glibcxx, needed_libraries
from envpack.support.errors import StubError

_LIBPYTHON = re.compile(r"libpython(3\.\d+)\.so\.1\.0")


@dataclass(frozen=True)
class StubNeeds:
    """What a stub needs to be able to serve.

    Attributes:
        path: the stub.
        machine: such as ``"x86_64"``.
        python: Python minor version that it embeds.
        glibc: the oldest glibc that it runs with.
        glibcxx: newest symbol version that it needs of libstdc++, ``""`` if it does without that library.
        epochs: names of the wires that it speaks, see `envpack.releases.Release.stub_abi`; empty if its file does not
            tell, as those of other makers.
        release_file: what the release file beside it says, ``""`` if there is none.
    """

    path: Path
    machine: str
    python: str
    glibc: str
    glibcxx: str
    epochs: tuple[str, ...]
    release_file: str


def read_stub_needs(path: Path) -> StubNeeds:
    """Read a stub's file, and the release file beside it; nothing of it is run.

    Raises:
        StubError: it is no stub, or damaged (``not-a-stub``).
    """
    release_file = _first_line(path.with_name(RELEASE_FILE))
    try:
        ours = inspect_stub(path)
    except StubError as error:
        return _needs_of_another(path, release_file, error)
    return StubNeeds(path, ours.machine, ours.python, ours.glibc, "", ours.epochs, release_file)


def _needs_of_another(path: Path, release_file: str, error: StubError) -> StubNeeds:
    """Needs of a stub that envpack did not build; ``error`` if it is none."""
    from elftools.elf.elffile import ELFFile

    try:
        with path.open("rb") as file:
            elf = ELFFile(file)
            pythons = [match[1] for name in needed_libraries(elf) if (match := _LIBPYTHON.fullmatch(name))]
            if pythons:
                machine = machine_named(elf["e_machine"])
                return StubNeeds(path, machine, pythons[0], needed_glibc(elf), needed_glibcxx(elf), (), release_file)
    except Exception:  # of a damaged file the parser makes whatever its first wrong step leads to
        raise error from None
    raise error


def _first_line(file: Path) -> str:
    try:
        return next(iter(file.read_text(encoding="utf-8", errors="replace").splitlines()), "").rstrip()
    except OSError:
        return ""
