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

from envpack.archive.members import header, padding
from envpack.environment.inventory import Entry
from envpack.errors import EnvironmentBuildError

PORTION = 2 << 20  # bytes of content; less makes archives larger, more takes more memory
_MOST_THREADS = 16  # two portions each

Compress = Callable[[bytes], bytes]


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

    def __init__(self, prefix: Path, compress: Compress, threads: int = 0) -> None:
        """``threads``: 0 for one for each core that this process may use."""
        self._prefix = str(prefix)
        self._compress = compress
        self._threads = min(threads or len(os.sched_getaffinity(0)), _MOST_THREADS)
        self._pool = ThreadPoolExecutor(self._threads)

    def __enter__(self) -> Packer:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)

    def packed(self, divided: Sequence[Sequence[Portion]]) -> Iterator[Iterator[bytes]]:
        """For each group of portions its compressed bytes; a group is to be used up before the next is asked for.

        Raises:
            EnvironmentBuildError: kind ``store-damaged``: a file is not the one that the entry is about.
            OSError: it cannot be read.

        """
        waiting: deque[Future[tuple[bytes, bytes]]] = deque()
        coming = iter([portion for group in divided for portion in group])

        def result() -> tuple[bytes, bytes]:
            while len(waiting) <= self._threads and (portion := next(coming, None)) is not None:
                waiting.append(self._pool.submit(self._pack, portion))
            return waiting.popleft().result()

        for group in divided:
            yield self._verified(group, result)

    def _verified(self, group: Sequence[Portion], result: Callable[[], tuple[bytes, bytes]]) -> Iterator[bytes]:
        digest = hashlib.sha256()
        for portion in group:
            packed, content = result()
            if portion.stop:  # of large files, whose parts come here in order
                digest.update(content)
                (entry,) = portion.entries
                if portion.stop == entry.size:
                    if digest.hexdigest() != entry.sha256:
                        raise damaged(self._prefix, entry)
                    digest = hashlib.sha256()
            yield packed

    def _pack(self, portion: Portion) -> tuple[bytes, bytes]:
        if portion.stop:
            (entry,) = portion.entries
            content = self._part(entry, portion.start, portion.stop)
            before = b"" if portion.start else header(entry)
            after = padding(entry.size) if portion.stop == entry.size else b""
            return self._compress(b"".join((before, content, after))), content
        pieces: list[bytes] = []
        for entry in portion.entries:
            pieces.append(header(entry))
            if entry.size:
                pieces += (self._whole(entry), padding(entry.size))
        return self._compress(b"".join(pieces)), b""

    def _whole(self, entry: Entry) -> bytes:
        content = self._part(entry, 0, entry.size)
        if hashlib.sha256(content).hexdigest() != entry.sha256:
            raise damaged(self._prefix, entry)
        return content

    def _part(self, entry: Entry, start: int, stop: int) -> bytes:
        try:
            file = os.open(f"{self._prefix}/{entry.path}", os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
                raise damaged(self._prefix, entry) from None
            raise
        try:
            content = os.pread(file, stop - start, start)
            if len(content) != stop - start or os.fstat(file).st_size != entry.size:
                raise damaged(self._prefix, entry)
            return content
        finally:
            os.close(file)


def damaged(prefix: str, entry: Entry) -> EnvironmentBuildError:
    """The error for a file that is not what it was when the environment was built."""
    return EnvironmentBuildError(
        f"{entry.path} of {entry.package} is not what it was when the environment was built",
        kind="store-damaged",
        where=prefix,
        hint=f"remove {prefix} and build again; nothing but envpack may write there",
    )
