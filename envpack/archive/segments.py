"""Compressed segments of archives, one per package, and the index that lets later archives copy them.

A gzip file may consist of several members, and a tar file is a sequence of its members' blocks, so an archive is the
concatenation of the segments of its packages. An index file beside each archive in the store, ``NAME.segments``,
records where each package's segment starts. It is valid only while the archive has the size and time that the index
records; the checksum of a segment is verified whenever the segment is copied.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import itertools
import json
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Self

from envpack.archive.tar_members import END, PORTION, Packer, member, portions
from envpack.environment.inventory import OWN, Entry
from envpack.support.bounded_reading import read_json
from envpack.support.pool import Pool
from envpack.support.progress import Progress
from envpack.support.replacement import replaced_file

_FLUSH = 16 << 20  # bytes


class Output:
    """A file, its size and its SHA-256. Use it in a ``with`` block."""

    def __init__(
        self, file: io.FileIO | BinaryIO, progress: Progress, *, hashed: bool = True, flushed: bool = False
    ) -> None:
        """Write to a file without buffer; if ``flushed``, to the disk while more is compressed, so the end is short."""
        self._progress = progress
        self._handle = file.fileno()
        self._hashed, self._flushed = hashed, flushed
        self._threads = Pool(2)
        self._flushing: Future[None] | None = None
        self._on_disk = 0
        self.digest = hashlib.sha256()  # of what was written, unless hashed is false
        self.size = 0  # bytes written so far

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *error: object) -> None:
        self._threads.__exit__(kind, *error)
        if self._flushing and kind is None:
            self._flushing.result()  # the kernel reports a failure only once

    def write(self, content: bytes | memoryview) -> None:
        hashed = self._threads.submit(self.digest.update, content) if self._hashed else None
        try:
            self.size += len(content)
            left = memoryview(content)
            while left:
                left = left[os.write(self._handle, left) :]
        finally:
            if hashed:
                hashed.result()  # the caller may change the buffer afterwards
        self._progress.advance(self.size, 0, "bytes")
        if self._flushed and self.size - self._on_disk >= _FLUSH:
            self._flush()

    def _flush(self) -> None:
        if self._flushing:
            if not self._flushing.done():
                return
            self._flushing.result()
        self._on_disk = self.size
        self._flushing = self._threads.submit(os.fdatasync, self._handle)


_SCHEMA = 1
_BUFFER = 2 << 20
RECIPE = 3  # raised when the bytes of members change
_FIRST_BLOCK = 8  # bytes
LEVEL = 2  # the best trade-off in the table of docs/explanation/archives.md


class DamagedSegmentError(Exception):
    """A segment in the store differs from what was written."""


@dataclass(frozen=True)
class Segment:
    """A part of an archive."""

    start: int  # offset of its first byte
    size: int  # bytes
    checksum: int  # CRC-32 of these bytes


def index_of(archive: Path) -> Path:
    return archive.with_name(f"{archive.name}.segments")


def write_index(archive: Path, segments: dict[str, Segment]) -> None:
    """Write the index of a finished archive; not flushed, since one that a power failure damages is ignored."""
    positions = {name: [segment.start, segment.size, segment.checksum] for name, segment in segments.items()}
    index = {"schema": _SCHEMA, "archive": _identity(archive.stat()), "segments": positions}
    with replaced_file(index_of(archive), durable=False) as partial:
        partial.write_text(json.dumps(index), encoding="utf-8")


def find_segments(store: Path, names: Collection[str]) -> dict[str, tuple[Path, Segment]]:
    """Segments by name in the archives of a folder, each with its archive, the newest first; not all may be found."""
    found: dict[str, tuple[Path, Segment]] = {}
    for index in _indexes(store):
        if len(found) == len(names):
            break
        archive = index.with_name(index.name.removesuffix(".segments"))
        segments = _read(index, archive)
        found |= {name: (archive, segments[name]) for name in names if name in segments and name not in found}
    return found


def copy_segment(archive: Path, segment: Segment, write: Callable[[memoryview], object]) -> int:
    from isal import isal_zlib

    buffer = memoryview(bytearray(_BUFFER))
    at, end, checksum = segment.start, segment.start + segment.size, 0
    with contextlib.suppress(FileNotFoundError), archive.open("rb", buffering=0) as file:
        while at < end and (count := os.preadv(file.fileno(), [buffer[: min(end - at, _BUFFER)]], at)):
            checksum = isal_zlib.crc32(buffer[:count], checksum)
            write(buffer[:count])
            at += count
    if at != end or checksum != segment.checksum:
        index_of(archive).unlink(missing_ok=True)
        raise DamagedSegmentError(f"{archive} is damaged")
    return checksum


def _indexes(store: Path) -> Iterator[Path]:
    times = {}
    for index in store.glob("[!.]*.segments"):
        with contextlib.suppress(FileNotFoundError):
            times[index] = index.stat().st_mtime_ns
    return iter(sorted(times, key=lambda index: (-times[index], index.name)))


def _read(index: Path, archive: Path) -> dict[str, Segment]:
    try:
        content = read_json(index)
        status = archive.stat()
        if (content["schema"], content["archive"]) != (_SCHEMA, _identity(status)):
            return {}
        segments = {name: Segment(*map(int, position)) for name, position in content["segments"].items()}
    except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError):
        return {}
    within = all(
        segment.start >= 0 and segment.size > 0 and segment.start + segment.size <= status.st_size
        for segment in segments.values()
    )
    return segments if within else {}


def _identity(status: os.stat_result) -> list[int]:
    return [status.st_size, status.st_mtime_ns]


def compressed(content: bytes | memoryview) -> bytes:
    """A gzip member without name and time.

    The first bytes are a block of their own. Where a stream begins with more than 16, isa-l up to 2.32 takes the hash
    of what follows the second from the address of its state, so that the result differs now and then. It does so in
    neither a block of up to 16 bytes nor what follows it.
    """
    from isal import isal_zlib

    stream, view = isal_zlib.compressobj(level=LEVEL, wbits=31), memoryview(content)
    first = (stream.compress(view[:_FIRST_BLOCK]), stream.flush(isal_zlib.Z_SYNC_FLUSH))
    return b"".join((*first, stream.compress(view[_FIRST_BLOCK:]), stream.flush()))


def compressor() -> str:
    """Name of the settings that decide the compressed bytes: library, version, level and portions."""
    import isal

    return f"isa-l {isal.ISAL_VERSION}, level {LEVEL}, portions of {PORTION} bytes, recipe {RECIPE}"


def by_package(entries: Sequence[Entry]) -> list[tuple[str, tuple[Entry, ...]]]:
    """Entries as archives have them: envpack's own, then packages, first those that a check of the stub reads."""
    early = {entry.package for entry in entries if entry.path.startswith(("lib/libpython3", "lib/libstdc++"))}
    ordered = sorted(
        entries, key=lambda entry: (entry.package != OWN, entry.package not in early, entry.package, entry.path)
    )
    return [(name, tuple(group)) for name, group in itertools.groupby(ordered, key=lambda entry: entry.package)]


def write_tar(
    out: Output,  # receives it
    # Files that come first, so that a reader can verify the rest while it reads; their content by name.
    head: Mapping[str, bytes],
    prefix: Path,
    entries: Sequence[Entry],
    store: Path | None,  # folder of archives from which segments are copied; None for a file that is not compressed
) -> dict[str, Segment]:
    """Write a tar file; returns the position of each segment by its content's digest, none if uncompressed."""
    compress = bytes if store is None else compressed
    out.write(compress(b"".join(member(name, content) for name, content in head.items())))
    segments = {}
    if store is None:
        with Packer(prefix, None) as packer:
            for blocks in packer.packed([list(portions(group)) for _, group in by_package(entries)]):
                for block in blocks:
                    out.write(block)
    else:
        segments = write_segments(prefix, entries, out, store)
    out.write(compress(END))
    return segments


def write_segments(prefix: Path, entries: Sequence[Entry], out: Output, store: Path) -> dict[str, Segment]:
    groups = {_digest(group): group for _, group in by_package(entries)}
    found = find_segments(store, groups)
    missing = [list(portions(group)) for digest, group in groups.items() if digest not in found]
    written = {}
    with Packer(prefix, compressed) as packer:
        made = packer.packed(missing)
        for digest in groups:
            start = out.size
            checksum = copy_segment(*found[digest], out.write) if digest in found else _write(next(made), out)
            written[digest] = Segment(start, out.size - start, checksum)
    return written


def _digest(entries: Sequence[Entry]) -> str:
    contents = [[entry.path, entry.kind, entry.size, entry.sha256, entry.target] for entry in entries]
    return hashlib.sha256(json.dumps([compressor(), contents]).encode()).hexdigest()


def _write(blocks: Iterator[bytes | memoryview], out: Output) -> int:
    """Write blocks while threads compress the next ones; returns the checksum."""
    from isal import isal_zlib

    checksum = 0
    for block in blocks:
        out.write(block)
        checksum = isal_zlib.crc32(block, checksum)
    return checksum
