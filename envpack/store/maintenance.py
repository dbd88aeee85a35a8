"""Lists, verifies and prunes a store that machines share."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from envpack.store.claims import PRUNE, PRUNE_EXPIRY, Claim, StoreClock, live_claims, reserved
from envpack.store.objects import TIMEOUT, ObjectInfo, Objects
from envpack.store.records import (
    Blob,
    OtherVersionError,
    Record,
    RecordIndex,
    RecordKind,
    blob_at,
    parse_record,
    record_at,
)
from envpack.store.shared import SharedStore, use_path
from envpack.support.errors import StorageError, UsageError, storage_errors
from envpack.support.pool import Pool
from envpack.support.progress import SILENT, Progress
from envpack.support.text import counted

_DAY = 86400.0  # seconds
_GRACE = 3600.0  # seconds for which a blob without record stays: its record may be on the way
_REQUESTS = 8  # at once
_BATCH = 1000  # objects that are removed at once
_LATE = 2 * TIMEOUT  # seconds that a request may be on the way, with its repetitions
_NOBODYS = "records/none"  # which no store has
_UNFINISHED = re.compile(r"[0-9a-f]{64}#[0-9]+")
_PATIENCE = 300.0  # seconds to wait for another prune


@dataclass(frozen=True)
class StoredEntry:
    """What a store has for one key."""

    kind: RecordKind  # "environment", "stub", "lock" or "package"
    key: str
    label: str  # what it is, as text
    size: int  # bytes; blobs that several entries share count for the first
    used: float  # when it was written or, for older ones, last used by a machine that may write; seconds since 1970
    complete: bool  # whether the store has all its blobs


@dataclass(frozen=True)
class StoreContent:
    """What a store holds."""

    entries: tuple[StoredEntry, ...]  # by kind; within a kind the longest unused first
    size: int  # bytes of all blobs
    loose: int  # bytes of blobs that belong to no entry
    foreign: int  # records that this version of envpack cannot read


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


@dataclass(frozen=True)
class StoreCheck:
    """What `verify_store` found."""

    checked: int  # number of blobs whose digests were verified
    # Paths of the blobs that differ, and of the records that cannot be used: they lack a blob, have one that differs,
    # or cannot be read.
    damaged: tuple[str, ...]
    removed: bool  # whether those were removed


def verify_store(store: SharedStore, *, repair: bool = False, progress: Progress = SILENT) -> StoreCheck:
    """Read every blob and compare it with its name, and every record with the blobs that are there.

    Args:
        store: the store.
        repair: remove what is damaged, so that the next machine that pushes puts it there again.
        progress: receives the bytes.

    Raises:
        StorageError: the store cannot be used.
    """
    objects, inventory = store.objects, _Inventory(store, anew=True)
    blobs = [Blob(sha256, info.size) for sha256, info in inventory.blobs.items()]
    total, done, wrong = sum(blob.size for blob in blobs), 0, set[str]()
    with Pool(_REQUESTS) as pool:
        digests = [pool.submit(_digest, objects, blob) for blob in blobs]
        for blob, digest in zip(blobs, digests, strict=True):
            if digest.result() != blob.sha256:
                wrong.add(blob.sha256)
            done += blob.size
            progress.advance(done, total, "bytes")
    # All of it takes long: others may have removed or mended what they found damaged, too.
    for sha256 in sorted(wrong):
        now = objects.head(inventory.blobs[sha256].path)
        if now is None or _digest(objects, Blob(sha256, now.size)) == sha256:  # many tags are those of the content
            wrong.remove(sha256)
        if now is None:
            del inventory.blobs[sha256]
    suspects = {*inventory.unusable(wrong)}
    records = sorted(suspects.intersection(_Inventory(store, anew=True).unusable(wrong))) if suspects else []
    damaged = (*sorted(inventory.blobs[sha256].path for sha256 in wrong), *records)
    if repair:
        objects.delete(records)  # before their blobs
        objects.delete(damaged[: len(wrong)])
    return StoreCheck(len(blobs), damaged, repair and bool(damaged))


def prune_store(
    store: SharedStore,
    days: float,
    *,
    named: Collection[str] = (),
    dry_run: bool = False,
    progress: Progress = SILENT,
) -> PrunedStore:
    """Remove entries unused for a number of days that no lock names, incomplete entries, and blobs of no entry.

    Blobs stay while a machine puts something into the store, and if a record cannot be read.

    Args:
        store: the store.
        days: 0 for any age.
        named: keys of environments and digests of packages that stay, see `envpack.lock.lockfile.named_by_locks`.
        dry_run: list what would be removed, and remove nothing.
        progress: receives each entry.

    Raises:
        UsageError: ``days`` is negative.
        StorageError: the store cannot be used.
    """
    if days < 0:
        raise UsageError("usage", f"days is {days:g}", "give 0 or more")
    if dry_run:
        before, clock = _Inventory(store), _clock(store)
        removed = _removable(before, days, named, clock.now(), progress)
        without = {(entry.kind, entry.key) for entry in removed}
        loose = _loose(store, clock, progress, without)
        unfinished = sum(file.stat().st_size for file in _unfinished(store, clock.now()))
        return PrunedStore(tuple(removed), sum(info.size for info in loose) + unfinished)
    with reserved(store.objects, PRUNE, patience=_PATIENCE, say=progress.detail, expiry=PRUNE_EXPIRY) as claim:
        if claim is None:
            progress.detail("nothing is removed: another machine prunes the store")
            return PrunedStore((), 0)
        before = _Inventory(store)
        removed = _removable(before, days, named, store.clock.now(), progress)
        _delete(store, claim, [path for entry in removed for path in before.paths_of(entry)])
        return PrunedStore(tuple(removed), _remove_loose(store, claim, progress))


def _removable(
    inventory: _Inventory, days: float, named: Collection[str], now: float, progress: Progress
) -> list[StoredEntry]:
    """The entries that are unused for a number of days by the store's clock and not named, and incomplete ones."""
    limit = now - days * _DAY
    removed = [
        entry
        for entry in inventory.content().entries
        if not entry.complete or (entry.used <= limit and not inventory.is_named(entry, named))
    ]
    for entry in removed:
        progress.detail(f"{entry.kind}: {entry.label}")
    return removed


def _clock(store: SharedStore) -> StoreClock:
    """The store's clock, or this machine's, if it may only read there."""
    try:
        return store.clock
    except StorageError:
        return StoreClock(ObjectInfo("", 0, time.time()))


def _delete(store: SharedStore, claim: Claim, paths: Sequence[str]) -> None:
    """Remove objects as long as those who push wait for it."""
    for start in range(0, len(paths), _BATCH):
        if not claim.held_for(_LATE):
            what = "the prune stood still for too long, so that others may count on what it would remove"
            raise StorageError("store-unreachable", what, "run the command again", str(store.location))
        try:
            store.objects.delete(paths[start : start + _BATCH])
        except BaseException:  # also for Ctrl-C: the removal may still be on its way
            claim.let_expire()
            raise


def _remove_loose(store: SharedStore, claim: Claim, progress: Progress) -> int:
    """Remove blobs that no record names, and what dead machines left; returns the bytes."""
    now = store.clock.now()
    for folder in ("claims", "probes"):
        stale = [found.path for found in store.objects.list(folder) if now - found.modified > _DAY]
        _delete(store, claim, stale)
    loose = _loose(store, store.clock, progress)
    _delete(store, claim, [blob.path for blob in loose])
    return sum(blob.size for blob in loose) + sum(_remove_file(file) for file in _unfinished(store, now))


def _unfinished(store: SharedStore, now: float) -> Iterator[Path]:
    """What processes were writing when they were killed. Only folders keep that, under names that no list contains."""
    folder = store.location.folder
    for file in folder.glob("blobs/[0-9a-f][0-9a-f]/*#*") if folder else ():
        with contextlib.suppress(FileNotFoundError):
            if _UNFINISHED.fullmatch(file.name) and now - file.lstat().st_mtime > _DAY:
                yield file


def _remove_file(file: Path) -> int:
    with storage_errors(file), contextlib.suppress(FileNotFoundError):
        size = file.lstat().st_size
        file.unlink()
        return size
    return 0


def _loose(
    store: SharedStore, clock: StoreClock, progress: Progress, without: Collection[tuple[RecordKind, str]] = ()
) -> Sequence[ObjectInfo]:
    """The blobs that a prune removes: no record names them, leaving some records out, and no push can count on them."""
    if live_claims(store.objects, clock):
        progress.detail("blobs stay: another machine puts something into the store")
        return ()
    inventory = _Inventory(store)
    if inventory.foreign:
        what = counted(inventory.foreign, "record")
        progress.detail(f"blobs stay: {what} of another version of envpack may name them")
        return ()
    return [blob for blob in inventory.loose(without) if clock.now() - blob.modified > _GRACE]


class _Inventory:
    """The records and blobs of a store. Records are listed first, so that no blob of a new record is missed."""

    def __init__(self, store: SharedStore, *, anew: bool = False) -> None:
        """Read all records: those that did not change from the index, unless ``anew``."""
        self._objects = store.objects
        self.damaged: list[str] = []  # paths of records that nothing can read
        found = list(store.objects.list("records"))
        if not found and store.objects.head(_NOBODYS):  # the library reads any HTML page as an empty list
            raise store.objects.corrupt(_NOBODYS, "no command writes it, so the server is no object store")
        index = RecordIndex(store.objects, empty=anew)
        with Pool(_REQUESTS) as pool:
            records = [future.result() for future in [pool.submit(self._read, info, index) for info in found]]
        index.save(found)
        self._records = {
            record: info.modified for record, info in zip(records, found, strict=True) if record is not None
        }
        self.foreign = sum(record is None for record in records)
        self._by_key = {(record.kind, record.key): record for record in self._records}
        self._uses = {info.path: info.modified for info in store.objects.list("uses")}
        self.blobs = {blob_at(info.path): info for info in store.objects.list("blobs") if blob_at(info.path)}

    def content(self) -> StoreContent:
        seen: set[str] = set()
        entries = sorted(
            (self._entry(record, written, seen) for record, written in self._records.items()),
            key=lambda entry: (entry.kind, entry.used),
        )
        size, loose = sum(info.size for info in self.blobs.values()), sum(info.size for info in self.loose())
        return StoreContent(tuple(entries), size, loose, self.foreign)

    def loose(self, without: Collection[tuple[RecordKind, str]] = ()) -> Iterator[ObjectInfo]:
        records = (record for record in self._records if (record.kind, record.key) not in without)
        named = {blob.sha256 for record in records for blob in record.blobs}
        return (info for sha256, info in self.blobs.items() if sha256 not in named)

    def is_named(self, entry: StoredEntry, named: Collection[str]) -> bool:
        """Whether locks name an entry: an environment, a package, or the lock of such an environment."""
        if entry.key in named:
            return True
        return self._by_key[entry.kind, entry.key].facts.get("environment") in named

    def paths_of(self, entry: StoredEntry) -> Iterator[str]:
        """The objects of an entry, its record first."""
        yield self._by_key[entry.kind, entry.key].path
        if (used := use_path(entry.kind, entry.key)) in self._uses:
            yield used

    def unusable(self, wrong: Collection[str]) -> Iterator[str]:
        """The paths of records that nothing can read, that lack a blob, or have one that is wrong."""
        yield from self.damaged
        for record in self._records:
            if not self._is_complete(record) or any(blob.sha256 in wrong for blob in record.blobs):
                yield record.path

    def _is_complete(self, record: Record) -> bool:
        found = ((self.blobs.get(blob.sha256), blob.size) for blob in record.blobs)
        return all(info is not None and info.size == size for info, size in found)

    def _read(self, info: ObjectInfo, index: RecordIndex) -> Record | None:
        """A record; ``None`` for an object that is none of this version of envpack."""
        place = record_at(info.path)
        if place is None:
            return None
        content = index.content(info)
        try:
            return parse_record(content, *place) if content is not None else None
        except OtherVersionError:
            return None
        except ValueError:
            self.damaged.append(info.path)
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
            self._is_complete(record),
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
    """The digest of a blob, ``""`` if it cannot be read: it is gone, or shorter than it was listed."""
    try:
        return objects.sha256(blob.path, blob.size)
    except StorageError as error:
        if error.kind != "store-corrupt":
            raise
        return ""
