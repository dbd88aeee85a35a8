"""The files of an environment as the bytes of a tar file, read, verified and compressed by several threads.

What a thread does at once is decided by the entries' sizes alone, so the result is the same for any number of threads,
and only a few such portions are in memory at any time.
"""

from __future__ import annotations

import errno
import hashlib
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from envpack.archive.members import BLOCK, header, padding
from envpack.environment import Entry
from envpack.support.errors import EnvironmentBuildError

PORTION = 2 << 20  # bytes of content; less makes archives larger, more takes more memory
_MOST_THREADS = 16  # two portions each

_SLACK = 256 << 10  # bytes of a buffer for headers; a portion with more gets a larger one

Compress = Callable[[memoryview], bytes]
Bytes = bytes | memoryview


@dataclass(frozen=True, slots=True)
class _Packed:
    """A portion as it is written.

    Attributes:
        result: its bytes; valid until the buffer is used again.
        buffer: what it was read into, if anybody still needs that.
        content: where in the buffer a part of a large file is.

    """

    result: Bytes
    buffer: bytearray | None = None
    content: slice | None = None


@dataclass(frozen=True, slots=True)
class Portion:
    """What one thread does at once: some whole entries, or a part of one large file.

    Attributes:
        entries: in order.
        start: where in the only entry's file the part starts.
        stop: where it ends; 0 for whole entries.

    """

    entries: tuple[Entry, ...]
    start: int = 0
    stop: int = 0


def portions(entries: Iterable[Entry]) -> Iterator[Portion]:
    """Divide entries; the same entries are always divided in the same way."""
    gathered: list[Entry] = []
    size = 0
    for entry in entries:
        if gathered and size + entry.size > PORTION:
            yield Portion(tuple(gathered))
            gathered, size = [], 0
        if entry.size > PORTION:
            for start in range(0, entry.size, PORTION):
                yield Portion((entry,), start, min(start + PORTION, entry.size))
        else:
            gathered.append(entry)
            size += entry.size
    if gathered:
        yield Portion(tuple(gathered))


class Packer:
    """Turns portions into compressed bytes, in order, with several threads. To be used in a ``with`` block."""

    def __init__(self, prefix: Path, compress: Compress | None, threads: int = 0) -> None:
        """``compress`` is None to leave bytes as they are; ``threads`` is 0 for one for each core of this process."""
        self._prefix = str(prefix)
        self._compress = compress
        self._threads = min(threads or len(os.sched_getaffinity(0)), _MOST_THREADS)
        self._pool = ThreadPoolExecutor(self._threads)
        self._verifier = ThreadPoolExecutor(1)  # of large files, whose parts have to come in order
        self._free: list[bytearray] = []

    def __enter__(self) -> Packer:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._verifier.shutdown(wait=True)

    def packed(self, divided: Sequence[Sequence[Portion]]) -> Iterator[Iterator[Bytes]]:
        """For each group of portions its compressed bytes, each piece to be used before the next is asked for.

        A group is to be used up before the next is asked for.

        Raises:
            EnvironmentBuildError: kind ``store-damaged``: a file is not the one that the entry is about.
            OSError: it cannot be read.

        """
        waiting: deque[Future[_Packed]] = deque()
        coming = iter([portion for group in divided for portion in group])

        def result() -> _Packed:
            while len(waiting) <= self._threads and (portion := next(coming, None)) is not None:
                waiting.append(self._pool.submit(self._pack, portion))
            return waiting.popleft().result()

        for group in divided:
            yield self._verified(group, result)

    def _verified(self, group: Sequence[Portion], result: Callable[[], _Packed]) -> Iterator[Bytes]:
        digest = hashlib.sha256()
        for portion in group:
            packed = result()
            if not portion.stop:
                yield packed.result
            elif packed.buffer is not None and packed.content is not None:  # of a large file, whose parts come in order
                verified = self._verifier.submit(digest.update, memoryview(packed.buffer)[packed.content])
                yield packed.result  # is written meanwhile; what turns out to be damaged is thrown away
                verified.result()
                (entry,) = portion.entries
                if portion.stop == entry.size:
                    if digest.hexdigest() != entry.sha256:
                        raise damaged(self._prefix, entry)
                    digest = hashlib.sha256()
            if packed.buffer is not None:
                self._free.append(packed.buffer)

    def _pack(self, portion: Portion) -> _Packed:
        if portion.stop:
            return self._pack_part(portion)
        headers = [header(entry) for entry in portion.entries]
        length = sum(
            len(before) + entry.size + -entry.size % BLOCK
            for before, entry in zip(headers, portion.entries, strict=True)
        )
        buffer = self._buffer(length)
        room = memoryview(buffer)
        at = 0
        for before, entry in zip(headers, portion.entries, strict=True):
            room[at : at + len(before)] = before
            at += len(before)
            if entry.size:
                self._whole(entry, room[at : at + entry.size])
                at = _padded(room, at + entry.size, entry.size)
        if self._compress is None:
            return _Packed(room[:length], buffer)
        packed = self._compress(room[:length])
        self._free.append(buffer)
        return _Packed(packed)

    def _pack_part(self, portion: Portion) -> _Packed:
        (entry,) = portion.entries
        before = b"" if portion.start else header(entry)
        content = slice(len(before), len(before) + portion.stop - portion.start)
        buffer = self._buffer(content.stop + BLOCK)
        room = memoryview(buffer)
        room[: content.start] = before
        self._read(entry, portion.start, room[content])
        end = _padded(room, content.stop, entry.size) if portion.stop == entry.size else content.stop
        return _Packed(self._compress(room[:end]) if self._compress else room[:end], buffer, content)

    def _buffer(self, length: int) -> bytearray:
        """One that was used before, where possible: the kernel has to clear each new page."""
        try:
            buffer = self._free.pop()
        except IndexError:
            buffer = bytearray(max(length, PORTION + _SLACK))
        return buffer if len(buffer) >= length else bytearray(length)

    def _whole(self, entry: Entry, room: memoryview) -> None:
        self._read(entry, 0, room)
        if hashlib.sha256(room).hexdigest() != entry.sha256:
            raise damaged(self._prefix, entry)

    def _read(self, entry: Entry, start: int, room: memoryview) -> None:
        try:
            file = os.open(f"{self._prefix}/{entry.path}", os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
                raise damaged(self._prefix, entry) from None
            raise
        try:
            beyond = bytearray(1)  # stays unused, or the file has grown; cheaper than to ask for its size
            expected = len(room) if start + len(room) == entry.size else len(room) + 1
            if os.preadv(file, (room, beyond), start) != expected:
                raise damaged(self._prefix, entry)
        finally:
            os.close(file)


def _padded(room: memoryview, end: int, size: int) -> int:
    """Fill up the last block of ``size`` bytes that end at ``end``; where the next one begins."""
    after = padding(size)
    room[end : end + len(after)] = after
    return end + len(after)


def damaged(prefix: str, entry: Entry) -> EnvironmentBuildError:
    """The error for a file that is not what it was when the environment was built."""
    return EnvironmentBuildError(
        f"{entry.path} of {entry.package} is not what it was when the environment was built",
        kind="store-damaged",
        where=prefix,
        hint=f"remove {prefix} and build again; nothing but envpack may write there",
    )
