"""The file that a tar file is written to, from start to end."""

from __future__ import annotations

import hashlib
import io
import os
from concurrent.futures import Future
from typing import BinaryIO, Self

from envpack.support.pool import Pool
from envpack.support.progress import Progress

_FLUSH = 16 << 20  # bytes


class Output:
    """A file, its size and its SHA-256. Use it in a ``with`` block.

    Attributes:
        digest: of what was written, unless ``hashed`` is false.
        size: bytes written so far.
    """

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
        self.digest = hashlib.sha256()
        self.size = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *error: object) -> None:
        self._threads.__exit__(kind, *error)
        if self._flushing and kind is None:
            self._flushing.result()  # the kernel reports a failure only once

    def write(self, content: bytes | memoryview) -> None:
        """Write the next bytes."""
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
