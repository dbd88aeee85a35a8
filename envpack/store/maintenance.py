"""Lists, verifies and prunes a store that machines share."""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from envpack.lock import LOCK_NAME, read_lock
from envpack.store.claims import live_claims
from envpack.store.objects import ObjectInfo, Objects
from envpack.store.records import MOST_RECORD, Blob, Record, RecordKind, blob_at, parse_record, record_at
from envpack.store.shared import SharedStore, use_path
from envpack.support.errors import InputError, StorageError
from envpack.support.pool import Pool
from envpack.support.progress import NoProgress, Progress
from envpack.support.text import counted

_DAY = 86400.0  # seconds
_GRACE = 3600.0  # seconds for which a blob without record stays: its record may be on the way
_CHUNK = 4 << 20  # bytes
_REQUESTS = 8  # at once


@dataclass(frozen=True)
class StoredEntry:
    """What a store has for one key.

    Attributes:
        kind: ``"environment"``, ``"stub"``, ``"lock"`` or ``"package"``.
        key: its key.
        label: what it is, as text.
        size: bytes; blobs that several entries share count for the first.
        used: when it was written or, for older ones, last used by a machine that may write; seconds since 1970.
        complete: whether the store has all its blobs.
    """

    kind: RecordKind
    key: str
    label: str
    size: int
    used: float
    complete: bool


@dataclass(frozen=True)
class StoreContent:
    """What a store holds.

    Attributes:
        entries: by kind; within a kind the longest unused first.
        size: bytes of all blobs.
        loose: bytes of blobs that belong to no entry.
        foreign: records that this version of envpack cannot read.
    """

    entries: tuple[StoredEntry, ...]
    size: int
    loose: int
    foreign: int


@dataclass(frozen=True)
class PrunedStore:
    """What `prune_store` removed, or would remove: entries, and bytes of blobs."""

    entries: tuple[StoredEntry, ...]
    size: int


def list_store(store: SharedStore) -> StoreContent:
    """What a store holds.

    Raises:
        StorageError: the store cannot be used.
    """
    return _Inventory(store).content()


def verify_store(store: SharedStore, *, progress: Progress | None = None) -> tuple[int, tuple[str, ...]]:
    """Read every blob and compare it with its name.

    Args:
        store: the store.
        progress: receives the bytes.

    Returns:
        How many blobs there are, and the paths of those that are damaged.

    Raises:
        StorageError: the store cannot be used.
    """
    progress = progress or NoProgress()
    blobs = [Blob(blob_at(found.path), found.size) for found in store.objects.list("blobs") if blob_at(found.path)]
    total, done, damaged = sum(blob.size for blob in blobs), 0, []
    with Pool(_REQUESTS) as pool:
        digests = [pool.submit(_digest, store.objects, blob) for blob in blobs]
        for blob, digest in zip(blobs, digests, strict=True):
            if digest.result() != blob.sha256:
                damaged.append(blob.path)
            done += blob.size
            progress.advance(done, total, "bytes")
    return len(blobs), tuple(damaged)


def prune_store(
    store: SharedStore,
    days: float,
    *,
    locks: Collection[Path] = (),
    dry_run: bool = False,
    progress: Progress | None = None,
) -> PrunedStore:
    """Remove entries unused for a number of days that no lock names, incomplete entries, and blobs of no entry.

    Blobs stay while a machine puts something into the store, and if a record cannot be read.

    Args:
        store: the store.
        days: 0 for any age.
        locks: folders; what the lockfiles in them name stays.
        dry_run: list what would be removed, and remove nothing.
        progress: receives each entry.

    Raises:
        InputError: a lockfile is damaged.
        StorageError: the store cannot be used.
    """
    progress = progress or NoProgress()
    named = _named(locks)
    before = _Inventory(store)
    limit = time.time() - days * _DAY
    removed = [
        entry
        for entry in before.content().entries
        if not entry.complete or (entry.used <= limit and not before.is_named(entry, named))
    ]
    for entry in removed:
        progress.detail(f"{entry.kind}: {entry.label}")
    if dry_run:
        loose = before.loose({(entry.kind, entry.key) for entry in removed})
        return PrunedStore(tuple(removed), sum(info.size for info in loose))
    for entry in removed:
        store.objects.delete([f"records/{entry.kind}/{entry.key}.json"])
        with contextlib.suppress(StorageError):
            store.objects.delete([use_path(entry.kind, entry.key)])
    return PrunedStore(tuple(removed), _remove_loose(store, progress))


def _remove_loose(store: SharedStore, progress: Progress) -> int:
    """Remove blobs that no record names, and what dead machines left; returns the bytes."""
    now = store.clock.now()
    for folder in ("claims", "probes"):
        stale = [found.path for found in store.objects.list(folder) if now - found.modified > _DAY]
        store.objects.delete(stale)
    if live_claims(store.objects, store.clock):
        progress.detail("blobs stay: another machine puts something into the store")
        return 0
    after = _Inventory(store)
    if after.foreign:
        progress.detail(f"blobs stay: {counted(after.foreign, 'record')} of another version of envpack may name them")
        return 0
    loose = [blob for blob in after.loose() if now - blob.modified > _GRACE]
    store.objects.delete([blob.path for blob in loose])
    return sum(blob.size for blob in loose)


def _named(folders: Iterable[Path]) -> frozenset[str]:
    """The keys of environments and packages that lockfiles name."""
    keys: set[str] = set()
    for file in (file for folder in folders for file in sorted(folder.rglob(LOCK_NAME))):
        lock = read_lock(file)
        if lock is not None:
            keys |= {lock.environment_key(strip=False), lock.environment_key(strip=True)}
            keys |= {package.sha256 for package in lock.conda} | {package.sha256 for package in lock.pip}
    for folder in folders:
        if not folder.is_dir():
            raise InputError(
                "this folder does not exist",
                kind="locks-missing",
                where=str(folder),
                hint="name the folder above the models whose lockfiles count",
            )
    return frozenset(keys)


class _Inventory:
    """The records and blobs of a store. Records are listed first, so that no blob of a new record is missed."""

    def __init__(self, store: SharedStore) -> None:
        self._objects = store.objects
        found = list(store.objects.list("records"))
        with Pool(_REQUESTS) as pool:
            records = [future.result() for future in [pool.submit(self._read, info) for info in found]]
        self._records = {
            record: info.modified for record, info in zip(records, found, strict=True) if record is not None
        }
        self.foreign = sum(record is None for record in records)
        self._uses = {info.path: info.modified for info in store.objects.list("uses")}
        self._blobs = {blob_at(info.path): info for info in store.objects.list("blobs") if blob_at(info.path)}

    def content(self) -> StoreContent:
        """What the store holds."""
        seen: set[str] = set()
        entries = sorted(
            (self._entry(record, written, seen) for record, written in self._records.items()),
            key=lambda entry: (entry.kind, entry.used),
        )
        size, loose = sum(info.size for info in self._blobs.values()), sum(info.size for info in self.loose())
        return StoreContent(tuple(entries), size, loose, self.foreign)

    def loose(self, without: Collection[tuple[RecordKind, str]] = ()) -> Iterator[ObjectInfo]:
        """The blobs that no record names, if some records were not there."""
        records = (record for record in self._records if (record.kind, record.key) not in without)
        named = {blob.sha256 for record in records for blob in record.blobs}
        return (info for sha256, info in self._blobs.items() if sha256 not in named)

    def is_named(self, entry: StoredEntry, named: Collection[str]) -> bool:
        """Whether locks name an entry: an environment, a package, or the lock of such an environment."""
        if entry.key in named:
            return True
        record = next(record for record in self._records if (record.kind, record.key) == (entry.kind, entry.key))
        return record.facts.get("environment") in named

    def _read(self, info: ObjectInfo) -> Record | None:
        """A record; ``None`` for an object that is none of this version of envpack."""
        place = record_at(info.path)
        if place is None:
            return None
        found = self._objects.read(info.path, MOST_RECORD)
        try:
            return parse_record(found[0], *place) if found else None
        except ValueError:
            return None

    def _entry(self, record: Record, written: float, seen: set[str]) -> StoredEntry:
        new = [blob for blob in dict.fromkeys(record.blobs) if blob.sha256 not in seen]
        seen |= {blob.sha256 for blob in new}
        return StoredEntry(
            record.kind,
            record.key,
            _label(record),
            sum(blob.size for blob in new),
            max(written, self._uses.get(use_path(record.kind, record.key), 0.0)),
            all(blob.sha256 in self._blobs and self._blobs[blob.sha256].size == blob.size for blob in record.blobs),
        )


def _label(record: Record) -> str:
    facts = {name: str(value) for name, value in record.facts.items()}
    if record.kind == "package":
        return f"{facts.get('name')} {facts.get('version')}"
    label = f"{record.key[:8]} Python {facts.get('python')}"
    packages = record.facts.get("packages")
    if isinstance(packages, list):
        names = [name for name in (str(package).partition(" ")[0] for package in packages) if name != "python"]
        label += f": {', '.join(names) or 'no packages'}"
    return label


def _digest(objects: Objects, blob: Blob) -> str:
    digest = hashlib.sha256()
    for start in range(0, blob.size, _CHUNK):
        digest.update(objects.read_part(blob.path, start, min(_CHUNK, blob.size - start), blob.size))
    return digest.hexdigest()
