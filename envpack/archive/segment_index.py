"""Where archives in the store have which package, so that the next archive copies it from there.

Beside each archive that we have compressed lies its index, ``NAME.segments``. It is of use only while the archive is
the one that it was written for, by size and time; what it says of a segment is verified when that is copied.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from envpack.support.replacement import replaced_file

_SCHEMA = 1
_BUFFER = 2 << 20


class DamagedSegmentError(Exception):
    """A segment in the store is not what was written there."""


@dataclass(frozen=True)
class Segment:
    """A part of an archive.

    Attributes:
        start: where it begins.
        size: bytes.
        checksum: CRC-32 of them.

    """

    start: int
    size: int
    checksum: int


@dataclass(frozen=True)
class Found:
    """A segment, and the archive in the store that has it."""

    archive: Path
    segment: Segment


def index_of(archive: Path) -> Path:
    """The file beside an archive in the store that says where in it which segment is."""
    return archive.with_name(f"{archive.name}.segments")


def write_index(archive: Path, segments: dict[str, Segment]) -> None:
    """Make a finished archive known.

    A flush to the disk is needless: what a power failure leaves of an index says nothing that would be believed.

    Raises:
        OSError: it cannot be written.

    """
    places = {name: [one.start, one.size, one.checksum] for name, one in segments.items()}
    told = {"schema": _SCHEMA, "archive": _identity(archive.stat()), "segments": places}
    with replaced_file(index_of(archive), durable=False) as partial:
        partial.write_text(json.dumps(told), encoding="utf-8")


def find_segments(store: Path, names: Collection[str]) -> dict[str, Found]:
    """Those of some segments that archives in a folder have, the newest archives first."""
    found: dict[str, Found] = {}
    for index in _indexes(store):
        if len(found) == len(names):
            break
        archive = index.with_name(index.name.removesuffix(".segments"))
        segments = _read(index, archive)
        found |= {name: Found(archive, segments[name]) for name in names if name in segments and name not in found}
    return found


def copy_segment(found: Found, write: Callable[[memoryview], object]) -> int:
    """Give a segment to ``write``; its checksum.

    Raises:
        DamagedSegmentError: it is not what its index says. The index is removed then.

    """
    from isal import isal_zlib

    buffer = memoryview(bytearray(_BUFFER))
    at, end, checksum = found.segment.start, found.segment.start + found.segment.size, 0
    with contextlib.suppress(FileNotFoundError), found.archive.open("rb", buffering=0) as archive:
        while at < end and (count := os.preadv(archive.fileno(), [buffer[: min(end - at, _BUFFER)]], at)):
            checksum = isal_zlib.crc32(buffer[:count], checksum)
            write(buffer[:count])
            at += count
    if at != end or checksum != found.segment.checksum:
        index_of(found.archive).unlink(missing_ok=True)
        raise DamagedSegmentError(f"{found.archive} is not what was written there")
    return checksum


def _indexes(store: Path) -> Iterator[Path]:
    times = {}
    for index in store.glob("[!.]*.segments"):
        with contextlib.suppress(FileNotFoundError):
            times[index] = index.stat().st_mtime_ns
    return iter(sorted(times, key=lambda index: (-times[index], index.name)))


def _read(index: Path, archive: Path) -> dict[str, Segment]:
    """What an index says; nothing if it is damaged, or not of this archive."""
    try:
        told = json.loads(index.read_bytes())
        status = archive.stat()
        if (told["schema"], told["archive"]) != (_SCHEMA, _identity(status)):
            return {}
        segments = {name: Segment(*map(int, place)) for name, place in told["segments"].items()}
    except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError):
        return {}
    within = all(
        one.start >= 0 and one.size > 0 and one.start + one.size <= status.st_size for one in segments.values()
    )
    return segments if within else {}


def _identity(status: os.stat_result) -> list[int]:
    return [status.st_size, status.st_mtime_ns]
