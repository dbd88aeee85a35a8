"""Moves blobs: uploads what the store lacks, and downloads in bounded memory, checked, and from where it stopped."""

from __future__ import annotations

import hashlib
import os
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO

from envpack.store.objects import CHUNK, Objects
from envpack.store.records import Blob
from envpack.support.errors import StorageError, disk_full, storage_errors
from envpack.support.pool import Pool, Report, transfer_all
from envpack.support.processes import raise_if_stopped
from envpack.support.progress import Progress

_WINDOW = 8  # requests at once, and so chunks in memory
_SMALL = 8 << 20  # bytes of a blob that is uploaded in one piece
_SPARE = 64 << 20  # bytes of the disk that a download leaves free


def blobs_of(content: BinaryIO, sizes: Sequence[int]) -> tuple[Blob, ...]:
    blobs = []
    for size in sizes:
        digest = hashlib.sha256()
        for piece in _pieces(content, size):
            digest.update(piece)
        blobs.append(Blob(digest.hexdigest(), size))
    return tuple(blobs)


def upload(objects: Objects, file: Path, blobs: Sequence[Blob], progress: Progress, *, again: bool = False) -> int:
    """Send the blobs of a file that a store lacks, or all of them ``again``; returns how many bytes were sent."""
    offsets: dict[Blob, int] = {}
    at = sent = 0
    for blob in blobs:
        offsets.setdefault(blob, at)
        at += blob.size
    tasks = [partial(_upload, objects, file, offset, blob, again) for blob, offset in offsets.items()]
    sizes = [blob.size for blob in offsets]

    def done(number: int, was_sent: bool) -> None:
        nonlocal sent
        sent += sizes[number] if was_sent else 0

    transfer_all(tasks, total=sum(sizes), threads=_WINDOW, progress=progress, done=done)
    return sent


def _upload(objects: Objects, file: Path, offset: int, blob: Blob, again: bool, report: Report) -> bool:
    present = None if again else objects.head(blob.path)
    if present is not None and present.size == blob.size:
        report(blob.size)
        return False
    with file.open("rb") as content:
        content.seek(offset)
        pieces = _reported(_pieces(content, blob.size), report)
        if blob.size <= _SMALL:
            objects.write(blob.path, b"".join(pieces))
        else:
            objects.upload(blob.path, pieces, blob.size)
    return True


def _reported(pieces: Iterator[bytes], report: Report) -> Iterator[bytes]:
    for piece in pieces:
        yield piece
        report(len(piece))


def _pieces(content: BinaryIO, size: int) -> Iterator[bytes]:
    while size and (piece := content.read(min(size, CHUNK))):
        yield piece
        size -= len(piece)


def download(objects: Objects, blobs: Sequence[Blob], file: Path, progress: Progress) -> None:
    """Download blobs into a file, one after the other. Each byte is checked before this returns.

    A file that a killed process left is continued. It stays if the store fails, so that the next call continues it.
    """
    with storage_errors(file):
        total = sum(blob.size for blob in blobs)
        with file.open("a+b") as partial:
            partial.seek(0)
            if total - partial.seek(0, os.SEEK_END) + _SPARE > _free(file.parent):
                raise disk_full(file)
            _Download(objects, blobs, partial, progress).run()


def _free(folder: Path) -> int:
    status = os.statvfs(folder)
    return status.f_bavail * status.f_frsize


@dataclass(frozen=True)
class _Chunk:
    blob: Blob
    start: int
    size: int

    @property
    def is_last(self) -> bool:
        return self.start + self.size == self.blob.size


class _Download:
    """One download: chunks are requested several at once, and written and checked in order."""

    def __init__(self, objects: Objects, blobs: Sequence[Blob], partial: BinaryIO, progress: Progress) -> None:
        self._objects = objects
        self._blobs = list(blobs)
        self._partial = partial
        self._progress = progress
        self._total = sum(blob.size for blob in blobs)
        self._digest = hashlib.sha256()
        self._begun = 0  # offset of the blob that is being downloaded
        self._left_before = False  # whether an earlier process wrote the beginning of that blob

    def run(self) -> None:
        for chunk, content in self._received(self._resume()):
            self._partial.write(content)
            self._digest.update(content)
            self._progress.advance(self._partial.tell(), self._total, "bytes")
            if chunk.is_last:
                self._end_blob(chunk.blob)

    def _resume(self) -> int:
        """Check what an earlier process left, and drop what is wrong; returns the offset to continue at."""
        self._partial.seek(0)
        for blob in self._blobs:
            digest, left = hashlib.sha256(), blob.size
            while left and (piece := self._partial.read(min(left, CHUNK))):
                digest.update(piece)
                left -= len(piece)
            if left or digest.hexdigest() != blob.sha256:
                if not left:
                    self._drop_from(self._begun)
                else:
                    self._digest, self._left_before = digest, left < blob.size
                break
            self._begun += blob.size
        else:
            self._drop_from(self._total)
        return self._partial.seek(0, os.SEEK_END)

    def _drop_from(self, offset: int) -> None:
        self._partial.truncate(offset)
        self._partial.seek(offset)

    def _received(self, offset: int) -> Iterator[tuple[_Chunk, bytes]]:
        coming = self._chunks(offset)
        waiting: deque[tuple[_Chunk, Future[bytes]]] = deque()
        with Pool(_WINDOW) as pool:
            while True:
                while len(waiting) < _WINDOW and (chunk := next(coming, None)) is not None:
                    waiting.append((chunk, pool.submit(self._read, chunk)))
                if not waiting:
                    return
                raise_if_stopped()
                chunk, future = waiting.popleft()
                yield chunk, future.result()

    def _read(self, chunk: _Chunk) -> bytes:
        return self._objects.read_part(chunk.blob.path, chunk.start, chunk.size, chunk.blob.size)

    def _chunks(self, offset: int) -> Iterator[_Chunk]:
        at = 0
        for blob in self._blobs:
            for start in range(max(offset - at, 0), blob.size, CHUNK):
                yield _Chunk(blob, start, min(CHUNK, blob.size - start))
            at += blob.size

    def _end_blob(self, blob: Blob) -> None:
        if self._digest.hexdigest() != blob.sha256:
            self._drop_from(self._begun)
            if not self._left_before:
                raise self._wrong(blob)
            # What the earlier process left may be the reason, so all of this blob is downloaded once more.
            self._left_before = False
            self._digest = hashlib.sha256()
            for content in self._objects.pieces(blob.path, blob.size):
                self._partial.write(content)
                self._digest.update(content)
            if self._digest.hexdigest() != blob.sha256:
                self._drop_from(self._begun)
                raise self._wrong(blob)
        self._begun += blob.size
        self._digest, self._left_before = hashlib.sha256(), False

    def _wrong(self, blob: Blob) -> StorageError:
        return self._objects.corrupt(blob.path, "its SHA-256 differs from the one in its name")
