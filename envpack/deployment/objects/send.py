"""Publishes a model repository to an object store: sends what changed, configurations last, and removes only its own.

A hidden object beside the models, `RECORD`, lists what was published with its digest and the store's tag. An object is
replaced or removed only if the record has it with that tag, or announces it: the record names what will be written
before it is written, so that a killed publication can be repeated.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from envpack.deployment.objects.content import Publication, PublishedFile
from envpack.deployment.objects.record import RECORD, STATEMENT, PublicationRecord, RecordEntry
from envpack.deployment.signing import SigningKey, provenance, sign_statement
from envpack.store import Objects
from envpack.support.bounded_reading import read_json
from envpack.support.errors import InputError, StorageError
from envpack.support.failures import storage_errors
from envpack.support.folders import cache_folder
from envpack.support.pool import Report, transfer_all
from envpack.support.processes import raise_if_stopped
from envpack.support.progress import NoProgress, Progress
from envpack.support.replacement import write_text

_PIECE = 4 << 20  # bytes
_SENDERS = 4  # files at once


@dataclass(frozen=True)
class Published:
    """What `publish` did, or would do.

    Attributes:
        sent: paths of the objects that were written, in order.
        unchanged: number of objects that were there already.
        removed: paths of objects of earlier publications that were removed.
        outdated: paths of objects of earlier publications that stay.
        size: bytes that were sent.
    """

    sent: tuple[str, ...]
    unchanged: int
    removed: tuple[str, ...]
    outdated: tuple[str, ...]
    size: int


@dataclass(frozen=True)
class _Described:
    """A file to publish with digest and size of its content."""

    file: PublishedFile
    sha256: str
    size: int

    @property
    def path(self) -> str:
        return self.file.path


def publish(
    publication: Publication,
    objects: Objects,
    *,
    only: Collection[str] = (),
    dry_run: bool = False,
    delete: bool = False,
    force: bool = False,
    key: SigningKey | None = None,
    progress: Progress | None = None,
) -> Published:
    """Make an object store hold a publication. What is there already is not sent again.

    Args:
        publication: the objects, in the order in which they are sent.
        objects: the folder of the object store that a server will read.
        only: the models that this is about; what earlier publications sent of others stays. All by default.
        dry_run: only determine what would be sent and removed.
        delete: remove what earlier publications sent and this one does not have.
        force: replace objects that no publication sent, too.
        key: signs a statement about each model, which is published in the model's folder.
        progress: receives the bytes.

    Raises:
        InputError: kind ``published-not-ours``: an object that would be replaced was not published by envpack.
        StorageError: the store cannot be used; kind ``publication-conflict``: another publication runs there.
    """
    publishing = _Publishing(publication, objects, force=force, key=key, progress=progress or NoProgress())
    return publishing.run(only, dry_run=dry_run, delete=delete)


class _Publishing:
    """One publication."""

    def __init__(
        self,
        publication: Publication,
        objects: Objects,
        *,
        force: bool,
        key: SigningKey | None,
        progress: Progress,
    ) -> None:
        self._objects = objects
        self._progress = progress
        self._files = _described(publication.files, objects)
        if key is not None:
            statements = _described(list(_statements(publication, self._files, key)), objects)
            self._files = sorted([*self._files, *statements], key=lambda file: file.file.is_config)
        self._record = PublicationRecord.read(objects)
        self._present = {info.path: info for info in objects.list() if info.path != RECORD}
        self._force = force

    def run(self, only: Collection[str], *, dry_run: bool, delete: bool) -> Published:
        changed = [file for file in self._files if not self._is_there(file)]
        foreign = [file.path for file in changed if not self._force and self._is_foreign(file.path)]
        if foreign:
            raise _not_ours(foreign, self._objects)
        wanted = {file.path for file in self._files}
        known = [path for path in self._record.known() if not only or path.split("/")[0] in only]
        gone = [path for path in known if path not in wanted and path in self._present]
        removable = [path for path in gone if not self._is_foreign(path)]
        if not dry_run and (changed or (delete and removable)):
            self._send(changed)
            if delete:
                self._remove(removable)
            self._record.finish()
        return Published(
            tuple(file.path for file in changed),
            len(self._files) - len(changed),
            tuple(removable) if delete else (),
            tuple(path for path in gone if not delete or path not in removable),
            sum(file.size for file in changed),
        )

    def _is_there(self, file: _Described) -> bool:
        entry, info = self._record.entries.get(file.path), self._present.get(file.path)
        if entry is None or info is None or entry.sha256 != file.sha256:
            return False
        return info.size == entry.size and info.tag == entry.tag

    def _is_foreign(self, path: str) -> bool:
        """Whether an object exists that no publication wrote, or that was written by somebody else since."""
        info, entry = self._present.get(path), self._record.entries.get(path)
        if info is None or path in self._record.pending:
            return False
        return entry is None or (entry.size, entry.tag) != (info.size, info.tag)

    def _send(self, changed: Sequence[_Described]) -> None:
        self._record.announce({file.path: file.size for file in changed})
        configs = [file for file in changed if file.file.is_config]
        others = [file for file in changed if not file.file.is_config]
        transfer_all(
            [partial(self._send_one, file) for file in others],
            total=sum(file.size for file in others),
            threads=_SENDERS,
            progress=self._progress,
            done=lambda number, tag: self._sent(others[number], tag),
        )
        for file in configs:
            self._sent(file, self._send_one(file, lambda _: None))

    def _sent(self, file: _Described, tag: str) -> None:
        self._record.sent(file.path, RecordEntry(file.sha256, file.size, tag))

    def _send_one(self, file: _Described, report: Report) -> str:
        """Send a file; returns the store's tag."""
        if file.file.file is None:
            return self._objects.write(file.path, file.file.content)
        digest = hashlib.sha256()
        pieces = _pieces(file.file.file, digest, report)
        if file.size > _PIECE:
            tag = self._objects.upload(file.path, pieces)
        else:
            tag = self._objects.write(file.path, b"".join(pieces))
        if digest.hexdigest() != file.sha256:
            raise StorageError(
                "this file changed while it was published",
                kind="file-unusable",
                where=str(file.file.file),
                hint="publish again when nothing writes to the repository",
            )
        return tag

    def _remove(self, paths: Sequence[str]) -> None:
        """Remove objects; configurations first, so that no server finds a model without its files."""
        configs = [path for path in paths if path.endswith("/config.pbtxt")]
        self._objects.delete(configs)
        self._objects.delete([path for path in paths if path not in configs])


def _statements(publication: Publication, files: Sequence[_Described], key: SigningKey) -> Iterator[PublishedFile]:
    """A signed statement about each model."""
    for model in dict.fromkeys(file.path.split("/")[0] for file in files):
        subjects = {file.path: file.sha256 for file in files if file.path.startswith(f"{model}/")}
        parameters = {"model": model, "triton": publication.triton}
        statement = provenance(subjects, parameters, publication.packages.get(model, ()))
        yield PublishedFile(f"{model}/{STATEMENT}", content=sign_statement(statement, key))


def _described(files: Sequence[PublishedFile], objects: Objects) -> list[_Described]:
    """Files with their digests. Those of large files are remembered by size, time stamp and inode."""
    place = hashlib.sha256(str(objects.location).encode()).hexdigest()[:16]
    memory = cache_folder("publications") / f"{place}.json"
    known, found = _remembered(memory), {}
    described = []
    for file in files:
        raise_if_stopped()
        if file.file is None:
            described.append(_Described(file, hashlib.sha256(file.content).hexdigest(), len(file.content)))
            continue
        status = file.file.stat()
        stamp = [status.st_size, status.st_mtime_ns, status.st_ino]
        name = str(file.file.absolute())
        sha256 = file.sha256 or (known[name][3] if known.get(name, [])[:3] == stamp else _sha256(file.file))
        found[name] = [*stamp, sha256]
        described.append(_Described(file, str(sha256), status.st_size))
    with storage_errors(memory):
        memory.parent.mkdir(parents=True, exist_ok=True)
        if found and found != known:
            write_text(memory, json.dumps(found))
    return described


def _remembered(memory: Path) -> dict[str, list[Any]]:
    try:
        known = read_json(memory)
        return {name: list(entry) for name, entry in known.items() if len(entry) == 4}
    except (OSError, ValueError, AttributeError, TypeError):
        return {}


def _sha256(file: Path) -> str:
    digest = hashlib.sha256()
    for _ in _pieces(file, digest):
        pass
    return digest.hexdigest()


def _pieces(file: Path, digest: Any, report: Report = lambda _: None) -> Iterator[bytes]:
    with file.open("rb") as content:
        os.posix_fadvise(content.fileno(), 0, 0, os.POSIX_FADV_SEQUENTIAL)
        while piece := content.read(_PIECE):
            digest.update(piece)
            yield piece
            report(len(piece))


def _not_ours(paths: Sequence[str], objects: Objects) -> InputError:
    more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
    return InputError(
        f"{paths[0]}{more} would be replaced, and envpack did not publish it, or it was changed since",
        kind="published-not-ours",
        where=str(objects.location),
        hint="publish to an empty folder, remove what is there, or add --force to replace it",
    )
