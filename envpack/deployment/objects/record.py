"""The object beside published models that lists what was published, with its digest and the store's tag."""

from __future__ import annotations

import contextlib
import json
import uuid
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from envpack.store.objects import ObjectInfo, Objects
from envpack.support.bounded_reading import parse_json
from envpack.support.errors import StorageError, UsageError, storage_errors
from envpack.support.text import is_sha256

RECORD = ".envpack-publication.json"
STATEMENT = ".envpack-statement.json"  # in the folder of each model that was signed
MOST_STATEMENT = 64 << 20  # bytes
OWN = ".envpack-"  # begins the name of each object beside the models that envpack keeps for itself
_SCHEMA = 1
_MOST_RECORD = 64 << 20  # bytes
_LARGE = 32 << 20  # bytes of a file after which the record is written, so that it is not sent again


def refuse_nested(objects: Objects, present: Iterable[str]) -> None:
    """Refuse to publish in or around another publication: a server takes the folder of the inner one for a model."""
    what = next((f"it holds {path.rpartition('/')[0]}" for path in present if path.endswith(f"/{RECORD}")), "")
    for location in () if what else objects.location.around():
        with contextlib.suppress(StorageError):  # what is above may be closed to this user
            what = f"it lies in {location}" if Objects(location).head(RECORD) else what
    if what:
        what += ", another publication, and a server takes the inner one of both for a model"
        raise UsageError("output-inside", what, "publish to a folder beside that one", str(objects.location))


@dataclass(frozen=True)
class RecordEntry:
    """An object that was published: digest and size of its content, and the tag that the store gave it."""

    sha256: str
    size: int
    tag: str


class PublicationRecord:
    """The object that lists what was published, ``written`` at a time by the store's clock.

    Its random name of the publication that wrote it makes its tag unique: many tags depend on nothing but the content.
    """

    def __init__(
        self,
        objects: Objects,
        entries: dict[str, RecordEntry],
        pending: dict[str, int],
        tag: str | None,
        written: float = 0.0,
    ) -> None:
        self._objects = objects
        self.entries = entries
        self.pending = pending
        self._tag = tag
        self.written = written
        self._name = uuid.uuid4().hex
        self._sent: set[str] = set()

    @property
    def exists(self) -> bool:
        return self._tag is not None

    @classmethod
    def read(cls, objects: Objects, *, or_damaged: bool = False) -> PublicationRecord:
        """The record in the store, an empty one if there is none; or if it is damaged, in case that it is replaced."""
        found = objects.read(RECORD, _MOST_RECORD)
        if found is None:
            return cls(objects, {}, {}, None)
        content, info = found
        try:
            document = parse_json(content)
            if document["schema"] != _SCHEMA:
                raise ValueError
            entries = {str(path): _entry(entry) for path, entry in document["files"].items()}
            pending = {str(path): int(size) for path, size in document["pending"].items()}
        except (ArithmeticError, ValueError, KeyError, TypeError, AttributeError) as error:
            if or_damaged:
                return cls(objects, {}, {}, info.tag, info.modified)
            raise objects.corrupt(RECORD, "it is no record of this version of envpack") from error
        return cls(objects, entries, pending, info.tag, info.modified)

    def is_current(self) -> bool:
        """Whether the store still has this one, and no publication has begun or ended since it was read."""
        found = self._objects.read(RECORD, _MOST_RECORD)
        return found is not None and found[1].tag == self._tag

    def known(self) -> tuple[str, ...]:
        """The paths of everything that was published, or would have been."""
        return tuple(dict.fromkeys((*self.entries, *self.pending)))

    def announce(self, paths: Mapping[str, int]) -> None:
        self.pending |= paths
        self._save()
        self.remove_unfinished()

    def remove_unfinished(self) -> None:
        """Remove what killed publications were writing to a folder: ``PATH#N``, which no list contains."""
        folder, known = self._objects.location.folder or Path(), set(self.known())
        for file in folder.rglob("*#*") if folder.name else ():
            path, _, number = str(file.relative_to(folder)).rpartition("#")
            if path in known and number.isdigit():
                with storage_errors(file):
                    file.unlink(missing_ok=True)

    def renew(self) -> bool:
        """Write the same again, with the time of the store; returns whether the record was still this one."""
        try:
            self._save()
        except StorageError as error:
            if error.kind == "publication-conflict":
                return False
            raise
        return True

    def sent(self, path: str, entry: RecordEntry) -> None:
        """Note what was written; a large file at once."""
        self.entries[path] = entry
        self._sent.add(path)
        if entry.size > _LARGE:
            self._save()

    def finish(self, wanted: Collection[str]) -> None:
        """Write down the result, with what earlier publications left there, if the store has what was sent.

        What an interrupted publication sent to a version or model that is sent now, too, becomes a file of an earlier
        publication. A version or model that only that one sent may be incomplete, and stays announced.
        """
        present = {info.path: info for info in self._objects.list()}
        for path in wanted:
            self._confirm(path, present.get(path))
        self.entries = {path: entry for path, entry in self.entries.items() if path in present}
        complete = {_version_of(path) for path in wanted}
        left = {path: size for path, size in self.pending.items() if path in present and path not in wanted}
        settled = {p for p, size in left.items() if _version_of(p) in complete and self._settle(present[p], size)}
        self.pending = {path: size for path, size in left.items() if path not in settled}
        self._save()

    def _settle(self, info: ObjectInfo, announced: int) -> bool:
        """Take what lies at a path for what was announced or was there before; whether it can be either."""
        entry = self.entries.get(info.path)
        if entry is not None and (entry.size, entry.tag) == (info.size, info.tag):
            return True
        if info.size != announced:
            return False
        self.entries[info.path] = RecordEntry(self._objects.sha256(info.path, info.size), info.size, info.tag)
        return True

    def _confirm(self, path: str, info: ObjectInfo | None) -> None:
        """Check that an object is what was sent; some stores list another tag than they gave it."""
        entry = self.entries[path]
        if info is None or info.size != entry.size:
            raise self._conflict(f"{path} is not what was sent: another program writes there")
        if info.tag == entry.tag:
            return
        if path not in self._sent or self._objects.sha256(path, info.size) != entry.sha256:
            raise self._conflict(f"{path} is not what was sent: another program writes there")
        self.entries[path] = replace(entry, tag=info.tag)

    def _save(self) -> None:
        files = {path: [entry.sha256, entry.size, entry.tag] for path, entry in sorted(self.entries.items())}
        document = {
            "schema": _SCHEMA,
            "publication": self._name,
            "files": files,
            "pending": dict(sorted(self.pending.items())),
        }
        content = json.dumps(document, indent=1).encode() + b"\n"
        if self._tag is None:
            self._objects.create(RECORD, content)
        else:
            self._objects.replace(RECORD, content, self._tag)
        found = self._objects.read(RECORD, _MOST_RECORD)
        if found is None or found[0] != content:
            raise self._conflict("another publication to this address runs, or has just ended")
        self._tag = found[1].tag

    def _conflict(self, reason: str) -> StorageError:
        fix = "publish again when nothing else writes there"
        return StorageError("publication-conflict", reason, fix, str(self._objects.location))


def _version_of(path: str) -> tuple[str, str]:
    """The model that an object belongs to, and its version, or ``""`` for what all versions have."""
    model, _, rest = path.partition("/")
    version, is_folder, _ = rest.partition("/")
    return model, version if is_folder and version[:1].isdigit() else ""


def _entry(found: Any) -> RecordEntry:
    """An entry of a record; without a digest, no change of its file would be noticed."""
    match found:
        case [str(sha256), int(size), str(tag)] if is_sha256(sha256) and size >= 0:
            return RecordEntry(sha256, size, tag)
    raise ValueError
