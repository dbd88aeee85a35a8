"""Compressed segments of archives, one for each package: what an archive in the store has is copied from there.

A gzip file may consist of several members one after the other, and a tar file is nothing but its members' blocks, so an
archive is the segments of its packages behind one another.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

from envpack.archive.segment_index import Segment, copy_segment, find_segments
from envpack.archive.stream import PORTION, Packer, portions
from envpack.environment import OWN, Entry

RECIPE = 2  # counts the changes of how members are written
LEVEL = 2  # the best of the table in docs/explanation/archives.md


class Output(Protocol):
    """Where an archive is written to, from start to end."""

    @property
    def size(self) -> int:
        """Bytes that were written so far."""

    def write(self, content: bytes | memoryview) -> None:
        """Take the next bytes."""


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
    prefix: Path, entries: Sequence[Entry], out: Output, store: Path, *, threads: int = 0
) -> dict[str, Segment]:
    """Write the segments of an environment's packages, in order: copied from archives in the store, or made.

    Args:
        prefix: root of the environment.
        entries: of the files to pack.
        out: takes the next bytes.
        store: the folder with archives; what it has of them is verified while it is copied.
        threads: how many compress; 0 for one for each core.

    Returns:
        Where the segments are in what was written, by what names their content.

    Raises:
        DamagedSegmentError: a segment in the store is damaged, and forgotten now. What was written is of no use then.
        EnvironmentBuildError: kind ``store-damaged``: a file is not what it was when the environment was built.
        OSError: the disk is full, or the folder cannot be written to.

    """
    groups = {_digest(group): group for _, group in by_package(entries)}
    found = find_segments(store, groups)
    missing = [list(portions(group)) for digest, group in groups.items() if digest not in found]
    written = {}
    with Packer(prefix, compressed, threads) as packer:
        made = packer.packed(missing)
        for digest in groups:
            start = out.size
            checksum = copy_segment(found[digest], out.write) if digest in found else _write(next(made), out)
            written[digest] = Segment(start, out.size - start, checksum)
    return written


def _digest(entries: Sequence[Entry]) -> str:
    told = [[one.path, one.kind, one.size, one.sha256, one.target] for one in entries]
    return hashlib.sha256(json.dumps([compressor(), told]).encode()).hexdigest()


def _write(blocks: Iterator[bytes | memoryview], out: Output) -> int:
    """Write what others compress meanwhile; its checksum."""
    from isal import isal_zlib

    checksum = 0
    for block in blocks:
        out.write(block)
        checksum = isal_zlib.crc32(block, checksum)
    return checksum
