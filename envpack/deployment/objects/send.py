"""Publishes a model repository to an object store: sends what changed, what servers act on last, removes only its own.

A hidden object beside the models, `RECORD`, lists what was published with its digest and the store's tag. An object is
replaced or removed only if the record has it with that tag, or announces it: the record names what will be written
before it is written, so that a killed publication can be repeated. While one publication writes, others wait: it holds
a claim of the store, `LEASE`.
"""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from envpack.deployment.objects.content import (
    PIECE,
    Publication,
    PublishedFile,
    changed,
    describe_files,
    pieces,
)
from envpack.deployment.objects.record import (
    MOST_STATEMENT,
    OWN,
    STATEMENT,
    PublicationRecord,
    RecordEntry,
    refuse_nested,
)
from envpack.deployment.signing import SigningKey, Statement, signed_anew
from envpack.store.claims import EXPIRY, Claim, reserved
from envpack.store.objects import ObjectInfo, Objects, upload_requests
from envpack.support.errors import InputError, StorageError
from envpack.support.pool import Pool, Report, transfer_all
from envpack.support.progress import SILENT, Progress
from envpack.support.text import counted

LEASE = f"{OWN}lease-"
_PATIENCE = 300.0  # seconds to wait for another publication
_SENDERS = 4  # files at once


@dataclass(frozen=True)
class Published:
    """What `publish` did, or would do.

    Attributes:
        sent: paths of the objects that were written, in order.
        unchanged: number of objects that were there already.
        removed: paths of objects of earlier publications that were removed.
        outdated: paths of objects of earlier publications that stay.
        size: bytes of the objects that were written.
        copied: bytes of them that the store copied itself.
    """

    sent: tuple[str, ...]
    unchanged: int
    removed: tuple[str, ...]
    outdated: tuple[str, ...]
    size: int
    copied: int


def publish(
    publication: Publication,
    objects: Objects,
    *,
    only: Collection[str] = (),
    dry_run: bool = False,
    delete: bool = False,
    force: bool = False,
    renew: bool = False,
    keys: Sequence[SigningKey] = (),
    earlier: Callable[[], Objects | None] = lambda: None,
    progress: Progress = SILENT,
) -> Published:
    """Make an object store hold a publication. What is there already is not sent again.

    Args:
        publication: the objects, in the order in which they are sent.
        objects: the folder of the object store that a server will read.
        only: the models that this is about; what earlier publications sent of others stays. All by default.
        dry_run: only determine what would be sent and removed.
        delete: remove what earlier publications sent and this one does not have.
        force: send everything, and replace objects that no publication sent, too.
        renew: note the time also if nothing has to be sent, for `--prune`.
        keys: sign a statement about each model, which is published in the model's folder.
        earlier: finds a publication in the same bucket of which the store may copy large files.
        progress: receives the bytes.

    Raises:
        InputError: kind ``published-not-ours``: an object that would be replaced was not published by envpack.
        StorageError: the store cannot be used; kind ``publication-conflict``: another publication runs there, or
            another program writes there.
    """
    publishing = _Publishing(publication, objects, force, keys, earlier, progress)
    return publishing.run(only, dry_run=dry_run, delete=delete, renew=renew)


@dataclass(frozen=True)
class _Difference:
    """What a store has, compared with what it should have."""

    record: PublicationRecord  # of earlier publications
    changed: Sequence[PublishedFile]  # what has to be sent
    gone: Sequence[str]  # what only earlier publications have
    removable: Sequence[str]  # what of that no other program has written since
    stale: Sequence[str]  # statements in that about models of which files changed
    copies: _Copies  # what the store can copy itself


class _Publishing:
    def __init__(
        self,
        publication: Publication,
        objects: Objects,
        force: bool,
        keys: Sequence[SigningKey],
        earlier: Callable[[], Objects | None],
        progress: Progress,
    ) -> None:
        self._objects = objects
        self._earlier = earlier
        self._progress = progress
        self._force = force
        self._late = publication.late
        self._borrowed = tuple(publication.borrowed.values())
        self._files = describe_files(publication.files, str(objects.location))
        if keys:
            statements = describe_files(self._statements(publication, keys), "")
            self._files = sorted([*self._files, *statements], key=lambda file: file.is_visible)
        self._lease: Claim | None = None

    def _statements(self, publication: Publication, keys: Sequence[SigningKey]) -> list[PublishedFile]:
        """A signed statement about each model; the one that is there if it is not a day old and says the same."""
        models, digests = _by_model(self._files), {file.path: file.sha256 for file in self._files}
        with Pool(_SENDERS) as pool:
            paths = [f"{model}/{STATEMENT}" for model in models]
            earlier = [pool.submit(self._objects.read, path, MOST_STATEMENT) for path in paths]
            found = [there.result() for there in earlier]
        statements = []
        for model, path, there in zip(models, paths, found, strict=True):
            names = [file.path for file in models[model]] + [*filter(None, [publication.borrowed.get(model)])]
            subjects = {name: digests[name] for name in names}
            digest = {"digest": publication.digest} if publication.digest else {}
            parameters = {"model": model, "triton": publication.triton, **digest}
            address, packages = self._objects.location.name, publication.packages.get(model, ())
            statement = Statement("publication", subjects, address, parameters, packages, time.time())
            envelope = signed_anew(statement, keys, there[0] if there else None)
            statements.append(PublishedFile(path, content=envelope))
        return statements

    def run(self, only: Collection[str], *, dry_run: bool, delete: bool, renew: bool = False) -> Published:
        found = self._difference(only)
        if found.changed:
            self._progress.detail(self._prediction(found))
        if not dry_run and (found.changed or found.record.pending or (delete and found.removable)):
            with self._alone():
                found = self._difference(only)  # another publication may have ended just now
                self._send(found)
                if delete:
                    self._remove([path for path in found.removable if path not in found.stale])
                found.record.finish([file.path for file in self._files])
        elif not dry_run and renew and not found.record.renew():
            return self.run(only, dry_run=dry_run, delete=delete)  # it is being removed
        removed = tuple(found.removable if delete else found.stale)
        return Published(
            tuple(file.path for file in found.changed),
            len(self._files) - len(found.changed),
            removed,
            tuple(path for path in found.gone if path not in removed),
            _size(found.changed),
            found.copies.size,
        )

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        leased = reserved(self._objects, LEASE, patience=_PATIENCE, say=self._progress.detail, expiry=EXPIRY)
        with leased as self._lease:
            self._require_lease()
            yield

    def _require_lease(self) -> None:
        if self._lease is None or not self._lease.held:
            what = "another publication to this address runs, or this one stood still for too long"
            fix = "publish again when it has ended"
            raise StorageError("publication-conflict", what, fix, str(self._objects.location))

    def _difference(self, only: Collection[str]) -> _Difference:
        record = PublicationRecord.read(self._objects, or_damaged=self._force)
        present = {info.path: info for info in self._objects.list() if not info.path.startswith(OWN)}
        changed = [file for file in self._files if self._force or not _is_there(file, record, present)]
        if changed:
            refuse_nested(self._objects, present)
        foreign = [file.path for file in changed if not self._force and is_foreign(file.path, record, present)]
        if foreign:
            raise _not_ours(foreign, self._objects)
        wanted = {file.path for file in self._files}
        known = [path for path in record.known() if not only or path.split("/")[0] in only]
        gone = [path for path in known if path not in wanted and path in present]
        removable = [path for path in gone if not is_foreign(path, record, present)]
        statements = {f"{file.path.split('/')[0]}/{STATEMENT}" for file in changed}
        stale = [path for path in removable if path in statements]
        return _Difference(record, changed, gone, removable, stale, self._copies(changed, record, present))

    def _copies(self, changed: Sequence[PublishedFile], record: PublicationRecord, present: Collection[str]) -> _Copies:
        copies = _Copies(self._objects, present)
        copies.take_from(self._objects, record)
        with contextlib.suppress(StorageError):  # nothing depends on what is beside this publication
            if copies.may_help(changed) and (earlier := self._earlier()) is not None:
                copies.take_from(earlier, PublicationRecord.read(earlier, or_damaged=True))
        return copies

    def _prediction(self, found: _Difference) -> str:
        """What is going to be written, what is there then, and of a cloud also the rest of what it charges for."""
        sent, copies = found.copies.split(found.changed)
        there = f"what is published takes {_amount(self._files)}"
        if self._objects.location.folder is not None:
            return f"to send: {_amount(sent)}; {there}"
        requests = sum(upload_requests(file.size) if file.size > PIECE else 1 for file in sent)
        copied = f"; the store copies {_amount(copies)}" if copies else ""
        shared = sum(file.size for file in self._files for path in self._borrowed if file.path == path)
        loaded = f"a server that loads all models downloads {(_size(self._files) + shared) / 1e6:.1f} MB"
        return f"to send: {_amount(sent)} in {counted(requests, 'request')}{copied}; {there}, and {loaded}"

    def _send(self, found: _Difference) -> None:
        """Send the content of all models; then what servers act on, model by model; ensembles last."""
        found.record.announce({file.path: file.size for file in found.changed})
        if found.stale:
            self._remove(found.stale)
        content = [[file] for file in found.changed if not file.is_visible]
        visible = _by_model(file for file in found.changed if file.is_visible)
        early = [files for model, files in visible.items() if model not in self._late]
        late = [files for model, files in visible.items() if model in self._late]
        copies = {file.path for file in found.copies.split(found.changed)[1]}
        for turn in (content, early, late):
            waits = [any(file.path in copies for file in group) for group in turn]  # for what they are copies of
            for step in (False, True):
                groups = [group for group, waiting in zip(turn, waits, strict=True) if waiting is step]
                self._send_side_by_side(groups, found)

    def _send_side_by_side(self, groups: Sequence[Sequence[PublishedFile]], found: _Difference) -> None:
        """Send groups of files at once, and the files of each group one after the other."""

        def done(number: int, tags: Sequence[str]) -> None:
            for file, tag in zip(groups[number], tags, strict=True):
                found.record.sent(file.path, RecordEntry(file.sha256, file.size, tag))

        transfer_all(
            [partial(self._send_in_order, group, found.copies) for group in groups],
            total=sum(_size(group) for group in groups),
            threads=_SENDERS,
            progress=self._progress,
            done=done,
        )

    def _send_in_order(self, files: Sequence[PublishedFile], copies: _Copies, report: Report) -> list[str]:
        return [self._copy_or_send(file, copies, report) for file in files]

    def _copy_or_send(self, file: PublishedFile, copies: _Copies, report: Report) -> str:
        """Have the store copy a file, or send it; returns the store's tag."""
        self._require_lease()
        tag = copies.made(file)
        if tag is not None:
            report(file.size)
            return tag
        tag = self._send_one(file, report)
        copies.take(self._objects, file, tag)
        return tag

    def _send_one(self, file: PublishedFile, report: Report) -> str:
        if file.file is None:
            return self._objects.write(file.path, file.content)
        digest = hashlib.sha256()
        content = pieces(file.file, digest, report)
        if file.size > PIECE:
            tag = self._objects.upload(file.path, content, file.size)
        else:
            tag = self._objects.write(file.path, b"".join(content))
        if digest.hexdigest() != file.sha256:
            raise changed(file.file)
        return tag

    def _remove(self, paths: Sequence[str]) -> None:
        self._require_lease()
        remove(self._objects, paths)


_LEAST = 1 << 20  # bytes of a file; one copy takes three requests


class _Copies:
    """What the store copies itself: large files whose content lies there, or is sent first.

    Only a path at which nothing lies gets a copy, so that what is there afterwards can be nothing else. Any thread.
    """

    def __init__(self, objects: Objects, present: Collection[str]) -> None:
        self._objects = objects
        self._present = present
        self._sources: dict[str, tuple[Objects, ObjectInfo]] = {}
        self._works = objects.location.folder is None
        self._made: list[PublishedFile] = []

    @property
    def size(self) -> int:
        """Bytes of the copies that were made."""
        return sum(file.size for file in self._made)

    def take_from(self, objects: Objects, record: PublicationRecord) -> None:
        """Use what a publication has sent to the same bucket."""
        for path, entry in record.entries.items():
            self.take(objects, PublishedFile(path, sha256=entry.sha256, size=entry.size), entry.tag)

    def take(self, objects: Objects, file: PublishedFile, tag: str) -> None:
        """Use an object that was written just now."""
        if file.size >= _LEAST:
            self._sources[file.sha256] = (objects, ObjectInfo(file.path, file.size, 0.0, tag))

    def may_help(self, files: Sequence[PublishedFile]) -> bool:
        """Whether an earlier publication can save something."""
        return any(self._can_be_copy(file) and file.sha256 not in self._sources for file in files)

    def split(self, files: Sequence[PublishedFile]) -> tuple[list[PublishedFile], list[PublishedFile]]:
        """The files that have to be sent, and those that the store can copy then."""
        known = set(self._sources)
        sent: list[PublishedFile] = []
        copied: list[PublishedFile] = []
        for file in files:
            (copied if self._can_be_copy(file) and file.sha256 in known else sent).append(file)
            known.add(file.sha256)
        return sent, copied

    def made(self, file: PublishedFile) -> str | None:
        """Let the store copy a file; returns the tag of the copy, ``None`` if the file has to be sent."""
        source = self._sources.get(file.sha256)
        if source is None or not self._can_be_copy(file):
            return None
        tag = self._objects.copy(*source, file.path)
        if tag is None:
            self._works = False  # the next one would fail as well, after as many requests
        else:
            self._made.append(file)
        return tag

    def _can_be_copy(self, file: PublishedFile) -> bool:
        return self._works and file.size >= _LEAST and file.path not in self._present


def remove(objects: Objects, paths: Sequence[str]) -> None:
    """Remove objects; those that servers act on first, so that no server finds a model without its files."""
    for visible in (True, False):
        objects.delete([path for path in paths if PublishedFile(path).is_visible is visible])


def _amount(files: Sequence[PublishedFile]) -> str:
    return f"{counted(len(files), 'file')}, {_size(files) / 1e6:.1f} MB"


def _size(files: Iterable[PublishedFile]) -> int:
    return sum(file.size for file in files)


def _by_model(files: Iterable[PublishedFile]) -> dict[str, list[PublishedFile]]:
    found: dict[str, list[PublishedFile]] = {}
    for file in files:
        found.setdefault(file.path.split("/")[0], []).append(file)
    return found


def _is_there(file: PublishedFile, record: PublicationRecord, present: dict[str, ObjectInfo]) -> bool:
    """Whether an object is still the one that a publication sent for this file."""
    entry, info = record.entries.get(file.path), present.get(file.path)
    if entry is None or info is None or entry.sha256 != file.sha256:
        return False
    return info.size == entry.size and info.tag == entry.tag


def is_foreign(path: str, record: PublicationRecord, present: dict[str, ObjectInfo]) -> bool:
    """Whether an object exists that no publication wrote, or that another program wrote since."""
    info, entry = present.get(path), record.entries.get(path)
    if info is None or path in record.pending:
        return False
    return entry is None or (entry.size, entry.tag) != (info.size, info.tag)


def _not_ours(paths: Sequence[str], objects: Objects) -> InputError:
    more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
    what = f"{paths[0]}{more} would be replaced, and envpack did not publish it, or it was changed since"
    fix = "publish to an empty folder, remove what is there, or add --force to replace it"
    return InputError("published-not-ours", what, fix, str(objects.location))
