"""Recognises stubs of this version of envpack, without a parser of ELF files: importing one takes longer than this."""

from __future__ import annotations

import json
import platform
import struct
from pathlib import Path
from typing import BinaryIO

import envpack
from envpack.support.bounded_reading import opened

FACTS_SECTION = ".envpack.facts"
_MACHINES = {62: "x86_64", 183: "aarch64"}
_HEADER = struct.Struct("<4sBB58x")  # magic, 64 bits, little endian
_MACHINE = struct.Struct("<H")
_SECTION = struct.Struct("<I20xQQ24x")  # where its name is, where it is, its size
_MOST_BYTES = 1 << 20  # of the facts, or of the names of sections


def is_own_stub(path: Path) -> bool:
    """Whether a file is a stub that this version of envpack compiled, for this machine."""
    try:
        with opened(path) as file:
            machine, facts = _read(file)
            version = json.loads(facts)["version"]
    except (OSError, ValueError, LookupError, TypeError, struct.error):
        return False
    return (version, machine) == (envpack.__version__, platform.machine())


def _read(file: BinaryIO) -> tuple[str, bytes]:
    """The machine of an ELF file, and its section of facts.

    Raises:
        ValueError: it is no such file.
        LookupError: it has no such section.
    """
    header = file.read(_HEADER.size)
    if _HEADER.unpack(header) != (b"\x7fELF", 2, 1):
        raise ValueError("not an ELF file of 64 bits")
    (machine,) = _MACHINE.unpack_from(header, 18)
    (at,), (count, names_at) = struct.unpack_from("<Q", header, 40), struct.unpack_from("<HH", header, 60)
    file.seek(at)
    sections = list(_SECTION.iter_unpack(file.read(count * _SECTION.size)))
    names = _content(file, sections[names_at])
    for section in sections:
        name = names[section[0] :].partition(b"\0")[0]
        if name == FACTS_SECTION.encode():
            return _MACHINES.get(machine, ""), _content(file, section)
    raise LookupError(FACTS_SECTION)


def _content(file: BinaryIO, section: tuple[int, int, int]) -> bytes:
    _, at, size = section
    if size > _MOST_BYTES:
        raise ValueError("a section is too large")
    file.seek(at)
    return file.read(size)
