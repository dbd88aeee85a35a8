"""A store that machines share: records by key, their blobs, and claims on what is being made."""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

from envpack.store.blobs import blobs_of, download, upload
from envpack.store.claims import EXPIRY, StoreClock, claimed, probe, pruned_since, prunes
from envpack.store.location import Location, parse_location
from envpack.store.objects import TIMEOUT, ObjectInfo, Objects
from envpack.store.records import MOST_RECORD, Blob, Record, RecordKind, parse_record, record_path
from envpack.support.errors import InputError, StorageError
from envpack.support.folders import path_in_shell
from envpack.support.pool import Pool
from envpack.support.progress import SILENT, Progress

_DAY = 86400.0  # seconds
_REQUESTS = 8  # at once
_MOST_PRUNES = 10  # during one push


class SharedStore:
    """A store of records and blobs. Nothing is sent before the first use.

    Attributes:
        location: where it is.
        push: whether what this machine makes is put there.
        objects: its objects.
    """

    def __init__(
        self, location: Location, *, push: bool = False, timeout: float = TIMEOUT, expiry: float = EXPIRY
    ) -> None:
        self.location = location
        self.push = push
        self.objects = Objects(location, timeout=timeout)
        self._expiry = expiry
        self._found: dict[str, Record | StorageError | None] = {}
        self._present: set[Blob] = set()  # that the store was seen to have
        self._contents: dict[tuple[Blob, ...], bytes] = {}  # of small records
        self._marks = True

    def find(self, kind: RecordKind, key: str) -> Record | None:
        """The record of a key, ``None`` if there is none. Reads it from the store once, unless `look_up` has.

        Raises:
            StorageError: the store cannot be used, or the record is damaged (``store-corrupt``).
        """
        path = record_path(kind, key)
        if path not in self._found:
            self._found[path] = self._read_record(kind, key)
        found = self._found[path]
        if isinstance(found, StorageError) or (found is None and self.push):  # which may soon be otherwise
            del self._found[path]
        if isinstance(found, StorageError):
            raise found
        return found

    def look_up(self, kind: RecordKind, keys: Iterable[str]) -> None:
        """Ask for the records of several keys side by side, which `find` then returns, or raises the error of one."""

        def ask(key: str) -> None:
            path = record_path(kind, key)
            try:
                self._found[path] = self._read_record(kind, key)
            except StorageError as error:
                self._found[path] = error

        with Pool(_REQUESTS) as pool:
            for asked in [pool.submit(ask, key) for key in dict.fromkeys(keys)]:
                asked.result()

    def complete(self, record: Record) -> Record:
        """A record of which the store has all blobs, by their sizes. Each blob is looked up once.

        Raises:
            StorageError: the store cannot be used; kind ``store-corrupt``: it lacks one.
        """
        with Pool(_REQUESTS) as pool:
            unseen = [blob for blob in dict.fromkeys(record.blobs) if blob not in self._present]
            found = [(blob, pool.submit(self.objects.head, blob.path)) for blob in unseen]
            for blob, there in found:
                info = there.result()
                if info is None or info.size != blob.size:
                    raise self.objects.corrupt(blob.path, "it is missing, or has another size")
                self._present.add(blob)
        return record

    def fetch(self, record: Record, file: Path, progress: Progress) -> None:
        """Download the content of a record into a file; see `envpack.store.blobs.download`."""
        file.parent.mkdir(parents=True, exist_ok=True)
        download(self.objects, record.blobs, file, progress)

    def read(self, record: Record, most: int) -> bytes:
        """The content of a record that is small, which is read once.

        Raises:
            StorageError: the store cannot be used; kind ``store-corrupt``: it is larger than ``most`` bytes, or is not
                what its digest says.
        """
        if record.size > most:
            raise self.objects.corrupt(record.path, f"it announces {record.size} bytes")
        if record.blobs in self._contents:
            return self._contents[record.blobs]
        content = b"".join(self.objects.read_part(blob.path, 0, blob.size, blob.size) for blob in record.blobs)
        if blobs_of(io.BytesIO(content), [blob.size for blob in record.blobs]) != record.blobs:
            raise self.objects.corrupt(record.blobs[0].path, "its SHA-256 differs from the one in its name")
        self._contents[record.blobs] = content
        return content

    def add(
        self,
        kind: RecordKind,
        key: str,
        file: Path,
        *,
        sizes: Sequence[int] = (),
        facts: Mapping[str, Any] | None = None,
        again: bool = False,
        progress: Progress = SILENT,
    ) -> int:
        """Put a file into the store, and write the record of its key unless there is one.

        What the store has is not sent. If another machine prunes the store meanwhile, that is looked for once more when
        the record is there.

        Args:
            kind: what it is.
            key: its key.
            file: the content.
            sizes: bytes of its pieces, each of which becomes a blob that records share; one piece by default.
            facts: what the record says of it.
            again: replace what the store has for the key, because that is damaged.
            progress: receives the bytes.

        Returns:
            How many bytes were sent.

        Raises:
            StorageError: the store cannot be used.
        """
        with file.open("rb") as content:
            blobs = blobs_of(content, sizes or [file.stat().st_size])
        return self._put(
            Record(kind, key, blobs, facts or {}),
            lambda again: upload(self.objects, file, blobs, progress, again=again),
            again=again,
        )

    def add_bytes(
        self, kind: RecordKind, key: str, content: bytes, *, facts: Mapping[str, Any], again: bool = False
    ) -> None:
        """As `add`, for a small content, which is sent in any case."""
        blobs = blobs_of(io.BytesIO(content), [len(content)])

        def send(_: bool) -> int:
            self.objects.write(blobs[0].path, content)
            return len(content)

        self._put(Record(kind, key, blobs, facts), send, again=again)

    def _put(self, record: Record, send: Callable[[bool], int], *, again: bool) -> int:
        """Send blobs and write their record, once more after each prune of another machine; returns the bytes sent."""
        sent = 0
        for _ in range(_MOST_PRUNES):
            before = prunes(self.objects, self.clock)
            sent += send(again)
            self._record(record, again=again)
            if not pruned_since(self.objects, before, self.clock):
                return sent
            again = False  # the prune may also have removed the record, because it lacked a blob
        what, fix = "other machines prune the store again and again", "run the command again when they have ended"
        raise StorageError("store-unreachable", what, fix, str(self.location))

    def _record(self, record: Record, *, again: bool) -> None:
        """Write a record, unless its key has one that is to stay."""
        self._found.pop(record.path, None)
        if again:
            self.objects.write(record.path, record.content())
        elif self._honours_conditions:
            self.objects.create(record.path, record.content())
        elif self.objects.head(record.path) is None:
            self.objects.write(record.path, record.content())

    @contextmanager
    def claimed(
        self, kind: RecordKind, key: str, what: str, progress: Progress, *, again: bool = False
    ) -> Iterator[bool]:
        """Wait until this process may make something, or another machine has made it.

        Args:
            kind: what it is.
            key: its key.
            what: the same for people.
            progress: receives a detail if it has to wait, or if the store cannot keep others out.
            again: make it although there is a record, because what that names is damaged.

        Yields:
            Whether this process has to make it: false if there is a record now.
        """
        if not self._honours_conditions:
            progress.detail(
                f"{self.location} ignores conditional writes, so that two machines may make the same thing at once"
            )
        with claimed(
            self.objects,
            kind,
            key,
            clock=self.clock,
            is_made=lambda: not again and self.objects.head(record_path(kind, key)) is not None,
            waiting=lambda: progress.detail(f"another machine makes {what}; wait for it"),
            expiry=self._expiry,
        ) as mine:
            yield mine

    @property
    def clock(self) -> StoreClock:
        """The store's clock. The first use writes a small object and removes it."""
        return self._probed[1]

    @property
    def _honours_conditions(self) -> bool:
        return self._probed[0]

    @cached_property
    def _probed(self) -> tuple[bool, StoreClock]:
        return probe(self.objects)

    def _read_record(self, kind: RecordKind, key: str) -> Record | None:
        path = record_path(kind, key)
        found = self.objects.read(path, MOST_RECORD)
        if found is None:
            return None
        content, info = found
        try:
            record = parse_record(content, kind, key)
        except ValueError as error:
            raise self.objects.corrupt(path, str(error)) from error
        self._mark_used(record, info)
        return record

    def _mark_used(self, record: Record, info: ObjectInfo) -> None:
        """Record a use once a day, so that `envpack cache prune` knows it; where this machine may write."""
        if not self._marks or abs(time.time() - info.modified) < _DAY:
            return
        path = use_path(record.kind, record.key)
        try:
            marked = self.objects.head(path)
            if marked is None or abs(time.time() - marked.modified) > _DAY:
                self.objects.write(path, b"")
        except StorageError:
            self._marks = False  # it only reads


def use_path(kind: RecordKind, key: str) -> str:
    """Where a store notes the last use of a record that is older than a day."""
    return f"uses/{kind}/{key}"


def open_store(url: str, *, push: bool = False, timeout: float = TIMEOUT, expiry: float = EXPIRY) -> SharedStore:
    """Open a store that machines share. Nothing is sent yet.

    Args:
        url: ``file:///folder``, ``s3://bucket/prefix``, ``gs://bucket/prefix`` or ``az://container/prefix``; for
            another S3 service ``s3://http://host:port/bucket/prefix``.
        push: whether to put there what this machine makes.
        timeout: seconds that one request may take.
        expiry: seconds after which the claim of a machine that gives no sign of life does not count.

    Raises:
        UsageError: kind ``bad-store-address``.
        InputError: kind ``store-folder-missing``: the folder of a ``file`` address does not exist.
    """
    location = parse_location(url)
    folder = location.folder
    if folder is not None and not folder.is_dir() and not (push and folder.parent.is_dir()):
        made = f"make the folder around it: mkdir -p {path_in_shell(folder.parent)}"
        fix = f"correct the address; or {made if push else 'build with --set push=true, which makes its last folder'}"
        raise InputError("store-folder-missing", "the folder of the store does not exist", fix, str(location))
    return SharedStore(location, push=push, timeout=timeout, expiry=expiry)
