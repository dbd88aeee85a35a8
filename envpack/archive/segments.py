"""Compressed segments of archives, one for each package, kept in the store: what was packed before is copied.

A gzip file may consist of several members one after the other, and a tar file is nothing but its members' blocks, so an
archive is the segments of its packages behind one another.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import struct
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from envpack.archive.stream import PORTION, Packer, portions
from envpack.atomic import replaced_file
from envpack.environment.inventory import OWN, Entry
from envpack.locations import cache_root

RECIPE = 2  # counts the changes of how members are written
LEVEL = 2  # the best of the table in docs/archives.md
_SEAL = struct.Struct("<8sQI")  # behind the segment: what it is, its size, its CRC-32
_MAGIC = b"envpkseg"
_BUFFER = 1 << 20

Write = Callable[[bytes | memoryview], object]


class DamagedSegmentError(Exception):
    """A segment in the store is not what was written there."""


def compressed(content: bytes | memoryview) -> bytes:
    """A gzip member without name and time."""
    from isal import isal_zlib

    return isal_zlib.compress(content, level=LEVEL, wbits=31)


def compressor() -> str:
    """What compresses, in words: other versions give other bytes for the same content."""
    import isal

    return f"isa-l {isal.ISAL_VERSION}, level {LEVEL}, portions of {PORTION} bytes, recipe {RECIPE}"


def by_package(entries: Sequence[Entry]) -> list[tuple[str, tuple[Entry, ...]]]:
    """Entries in the order of an archive: envpack's own first, then by package, then by path.

    Packages with libraries that decide whether a stub can start come before others, so that whoever wants to know does
    not have to unzip all of the archive.
    """
    early = {entry.package for entry in entries if entry.path.startswith(("lib/libpython3", "lib/libstdc++"))}
    ordered = sorted(entries, key=lambda one: (one.package != OWN, one.package not in early, one.package, one.path))
    return [(name, tuple(group)) for name, group in itertools.groupby(ordered, key=lambda one: one.package)]


def write_segments(
    prefix: Path, entries: Sequence[Entry], write: Write, *, threads: int = 0, trusting: bool = True
) -> None:
    """Give the segments of an environment's packages to ``write``, in order: from the store, or made and kept there.

    Args:
        prefix: root of the environment.
        entries: of the files to pack.
        write: takes the next bytes.
        threads: how many compress; 0 for one for each core.
        trusting: take segments in the store that look complete. They are verified while they are written; without
            trust they are also read before, and made again if they are damaged.

    Raises:
        DamagedSegmentError: a segment in the store is damaged. What ``write`` got is of no use then.
        EnvironmentBuildError: kind ``store-damaged``: a file is not what it was when the environment was built.
        OSError: the disk is full, or the folder cannot be written to.

    """
    folder = cache_root() / "segments"
    folder.mkdir(parents=True, exist_ok=True)
    found = [(name, folder / _digest(group), group) for name, group in by_package(entries)]
    missing = {file: group for _, file, group in found if not _is_whole(file, trusting=trusting)}
    with Packer(prefix, compressed, threads) as packer:
        made = packer.packed([list(portions(group)) for group in missing.values()])
        for name, file, _ in found:
            if file in missing:
                _write(file, next(made), write)
            elif not _read(file, write):
                raise DamagedSegmentError(f"the packed {name} is not what was written there")


def _read(file: Path, write: Write) -> bool:
    """Whether all of a segment could be given to ``write``, and has the checksum that it should."""
    from isal import isal_zlib

    buffer = memoryview(bytearray(_BUFFER))
    with file.open("rb", buffering=0) as content:
        left, expected = _seal(content.fileno()) or (0, -1)
        content.seek(0)
        checksum = 0
        while left and (count := content.readinto(buffer[: min(left, _BUFFER)])):
            piece = buffer[:count]
            checksum = isal_zlib.crc32(piece, checksum)
            write(piece)
            left -= count
    return not left and checksum == expected


def _digest(entries: Sequence[Entry]) -> str:
    told = [[one.path, one.kind, one.size, one.sha256, one.target] for one in entries]
    return hashlib.sha256(json.dumps([compressor(), told]).encode()).hexdigest()


def _write(file: Path, blocks: Iterator[bytes], also: Write) -> None:
    """Keep a segment, and give it to ``also`` at once, while others are compressed.

    The seal makes a flush to the disk needless: what a power failure leaves of a segment is not taken for one.
    """
    from isal import isal_zlib

    size = checksum = 0
    with replaced_file(file, durable=False) as partial, partial.open("wb", buffering=0) as out:
        for block in blocks:
            out.write(block)
            also(block)
            size += len(block)
            checksum = isal_zlib.crc32(block, checksum)
        out.write(_SEAL.pack(_MAGIC, size, checksum))


def _is_whole(file: Path, *, trusting: bool) -> bool:
    try:
        with file.open("rb", buffering=0) as content:
            complete = _seal(content.fileno()) is not None
        return complete and (trusting or _read(file, len))
    except FileNotFoundError:
        return False


def _seal(file: int) -> tuple[int, int] | None:
    """Size and checksum of the segment in a file; ``None`` if it is not complete."""
    size = os.fstat(file).st_size - _SEAL.size
    if size < 0:
        return None
    magic, expected, checksum = _SEAL.unpack(os.pread(file, _SEAL.size, size))
    return (size, checksum) if (magic, expected) == (_MAGIC, size) else None
