"""Publishes a model repository to an object store: sends what changed, configurations last, and removes only its own.

A hidden object beside the models, `RECORD`, lists what was published with its digest and the store's tag. An object is
replaced or removed only if the record has it with that tag, or announces it: the record names what will be written
before it is written, so that a killed publication can be repeated.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from envpack.deployment.publication import Publication, PublishedFile
from envpack.store import Objects, Report, transfer_all
from envpack.support.bounded_reading import parse_json, read_json
from envpack.support.cache_locations import cache_root
from envpack.support.errors import InputError, StorageError
from envpack.support.processes import raise_if_stopped
from envpack.support.progress import NoProgress, Progress
from envpack.support.replacement import write_text
from envpack.support.storage_errors import storage_errors

RECORD = ".envpack-publication.json"
_SCHEMA = 1
_MOST_RECORD = 64 << 20  # bytes
_PIECE = 4 << 20  # bytes
_LARGE = 32 << 20  # bytes of a file after which the record is written, so that it is not sent again
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
class _Entry:
    """An object that was published: digest and size of its content, and the store's tag."""

    sha256: str
    size: int
    tag: str


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
        progress: receives the bytes.

    Raises:
        InputError: kind ``published-not-ours``: an object that would be replaced was not published by envpack.
        StorageError: the store cannot be used; kind ``publication-conflict``: another publication runs there.
    """
    publishing = _Publishing(publication, objects, force=force, progress=progress or NoProgress())
    return publishing.run(only, dry_run=dry_run, delete=delete)


def copy_publication(objects: Objects, folder: Path, progress: Progress) -> None:
    """Copy a published repository to a folder. Each file is compared with the record of the publication.

    What is there without a record, because another program put it there, is copied as it is.

    Args:
        objects: the folder of the object store.
        folder: an empty folder.
        progress: receives the bytes.

    Raises:
        InputError: kind ``published-changed``: an object is missing, or is not what was published.
        StorageError: the store cannot be used.
    """
    entries = _Record.read(objects).entries
    present = {info.path: info for info in objects.list() if not info.path.startswith(".")}
    wanted = {path: entry.size for path, entry in entries.items()} or {p: info.size for p, info in present.items()}
    total, done = sum(wanted.values()), 0
    for path, size in wanted.items():
        if path not in present or present[path].size != size:
            raise _changed(path, objects)
        digest = hashlib.sha256()
        file = _inside(folder, path, objects)
        with storage_errors(file), file.open("wb") as content:
            for start in range(0, size, _PIECE):
                piece = objects.read_part(path, start, min(_PIECE, size - start), size)
                digest.update(piece)
                content.write(piece)
                done += len(piece)
                progress.advance(done, total, "bytes")
        if path in entries and digest.hexdigest() != entries[path].sha256:
            raise _changed(path, objects)


def _inside(folder: Path, path: str, objects: Objects) -> Path:
    """A path below a folder for an object; its folder is made."""
    if any(part in ("", ".", "..") for part in path.split("/")):
        raise objects.corrupt(path, "its name leads to another folder")
    file = folder / path
    file.parent.mkdir(parents=True, exist_ok=True)
    return file


def _changed(path: str, objects: Objects) -> InputError:
    return InputError(
        f"{path} is not what was published",
        kind="published-changed",
        where=str(objects.location),
        hint="publish again; with --force if another program writes there",
    )


class _Publishing:
    """One publication."""

    def __init__(self, publication: Publication, objects: Objects, *, force: bool, progress: Progress) -> None:
        self._objects = objects
        self._progress = progress
        self._files = _described(publication.files, objects)
        self._record = _Record.read(objects)
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
            done=lambda number, tag: self._record.sent(others[number], tag),
        )
        for file in configs:
            self._record.sent(file, self._send_one(file, lambda _: None))

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


class _Record:
    """The object that lists what was published."""

    def __init__(self, objects: Objects, entries: dict[str, _Entry], pending: dict[str, int], tag: str | None) -> None:
        self._objects = objects
        self.entries = entries
        self.pending = pending
        self._tag = tag
        self._sent: set[str] = set()

    @classmethod
    def read(cls, objects: Objects) -> _Record:
        """The record in the store, an empty one if there is none.

        Raises:
            StorageError: kind ``store-corrupt``: it is damaged, or of another version of envpack.
        """
        found = objects.read(RECORD, _MOST_RECORD)
        if found is None:
            return cls(objects, {}, {}, None)
        content, info = found
        try:
            document = parse_json(content)
            if document["schema"] != _SCHEMA:
                raise ValueError
            entries = {str(path): _Entry(*_texts(entry)) for path, entry in document["files"].items()}
            pending = {str(path): int(size) for path, size in document["pending"].items()}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise objects.corrupt(RECORD, "it is no record of this version of envpack") from error
        return cls(objects, entries, pending, info.tag)

    def known(self) -> tuple[str, ...]:
        """The paths of everything that was published, or would have been."""
        return tuple(dict.fromkeys((*self.entries, *self.pending)))

    def announce(self, paths: Mapping[str, int]) -> None:
        """Write down what will be written."""
        self.pending |= paths
        self._save()

    def sent(self, file: _Described, tag: str) -> None:
        """Note what was written; a large file at once."""
        self.entries[file.path] = _Entry(file.sha256, file.size, tag)
        self._sent.add(file.path)
        if file.size > _LARGE:
            self._save()

    def finish(self) -> None:
        """Write down the result, with what earlier publications left there.

        The tags are those of a listing, because some stores return others for what was just written.
        """
        present = {info.path: info for info in self._objects.list()}
        self.entries = {path: entry for path, entry in self.entries.items() if path in present}
        for path in self._sent & self.entries.keys():
            self.entries[path] = replace(self.entries[path], tag=present[path].tag)
        self.pending = {p: size for p, size in self.pending.items() if p in present and p not in self._sent}
        self._save()

    def _save(self) -> None:
        files = {path: [entry.sha256, entry.size, entry.tag] for path, entry in sorted(self.entries.items())}
        document = {"schema": _SCHEMA, "files": files, "pending": dict(sorted(self.pending.items()))}
        content = json.dumps(document, indent=1).encode() + b"\n"
        replaced = (
            self._objects.create(RECORD, content)
            if self._tag is None
            else self._objects.replace(RECORD, content, self._tag)
        )
        if not replaced:
            raise StorageError(
                "another publication to this address runs, or has just ended",
                kind="publication-conflict",
                where=str(self._objects.location),
                hint="publish again when it has ended",
            )
        info = self._objects.head(RECORD)
        self._tag = info.tag if info else None


def _texts(entry: Any) -> tuple[str, int, str]:
    sha256, size, tag = entry
    return str(sha256), int(size), str(tag)


def _described(files: Sequence[PublishedFile], objects: Objects) -> list[_Described]:
    """Files with their digests. Those of large files are remembered by size, time stamp and inode."""
    place = hashlib.sha256(str(objects.location).encode()).hexdigest()[:16]
    memory = cache_root() / "publications" / f"{place}.json"
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
        if found != known:
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
