"""Reading what a stub is from its file alone, without running it."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from envpack.stub.platforms import machine_named
from envpack.support.elf import needed_glibc, needed_libraries, version_key
from envpack.support.errors import StubError

_FACTS = ".envpack.facts"
_BODY = ".envpack.body"


@dataclass(frozen=True)
class StubFacts:
    """What a stub needs and serves.

    Attributes:
        machine: ``"x86_64"`` or ``"aarch64"``.
        python: minor version of the Python it embeds.
        libpython: the shared library it loads, for example ``"libpython3.8.so.1.0"``.
        epochs: the wires that it speaks, each named after the first release that spoke it.
        version: version of envpack that its sources came with.
        glibc: newest glibc symbol version that it needs, for example ``"2.34"``.
        compiler: what compiled it, for example ``"GNU 12.2.0"``.
        numpy: major versions of NumPy that it runs with.
        needs: shared libraries that the loader looks for when the stub starts, libpython first.
    """

    machine: str
    python: str
    libpython: str
    epochs: tuple[str, ...]
    version: str
    glibc: str
    compiler: str
    numpy: tuple[int, ...]
    needs: tuple[str, ...]


def inspect_stub(path: Path) -> StubFacts:
    """Read a stub of ours.

    Raises:
        StubError: the file is missing, no ELF file, damaged, or somebody else's (``not-a-stub``).
    """
    if path.exists() and not path.is_file():
        raise _not_a_stub(path, "this is no file")
    try:
        file = path.open("rb")
    except FileNotFoundError:
        raise _not_a_stub(path, "there is no such file") from None
    except OSError as error:
        raise _not_a_stub(path, f"the file cannot be opened: {error.strerror}") from error
    with file:
        try:
            return _read(file, path)
        except StubError:
            raise
        except Exception as error:  # of a damaged file the parser makes whatever its first wrong step leads to
            raise _not_a_stub(path, "not a readable ELF file, or a damaged one") from error


def _read(file: BinaryIO, path: Path) -> StubFacts:
    from elftools.elf.elffile import ELFFile

    outer = ELFFile(file)
    facts_section, body_section = outer.get_section_by_name(_FACTS), outer.get_section_by_name(_BODY)
    if facts_section is None or body_section is None:
        raise _not_a_stub(path, "it was not built by envpack")
    facts = json.loads(facts_section.data())
    body = ELFFile(io.BytesIO(body_section.data()))
    needed = needed_libraries(body)
    if facts["libpython"] not in needed:
        raise _not_a_stub(path, f"it says {facts['libpython']} but needs {', '.join(needed)}")
    return StubFacts(
        machine=machine_named(outer["e_machine"]),
        python=facts["python"],
        libpython=facts["libpython"],
        epochs=tuple(facts["epochs"]),
        version=facts["version"],
        glibc=max(needed_glibc(outer), needed_glibc(body), key=version_key),
        compiler=facts["compiler"],
        numpy=tuple(facts["numpy"]),
        needs=(facts["libpython"], *sorted({*needed_libraries(outer), *needed} - {facts["libpython"]})),
    )


def _not_a_stub(path: Path, why: str) -> StubError:
    return StubError(
        f"not a stub of envpack: {why}", kind="not-a-stub", where=str(path), hint="build one with `envpack stub`"
    )
