"""The object beside published models that lists what was published, with its digest and the store's tag."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from envpack.store import Objects
from envpack.support.bounded_reading import parse_json
from envpack.support.errors import StorageError

RECORD = ".envpack-publication.json"
STATEMENT = ".envpack-statement.json"  # in the folder of each model that was signed
_SCHEMA = 1
_MOST_RECORD = 64 << 20  # bytes
_LARGE = 32 << 20  # bytes of a file after which the record is written, so that it is not sent again


@dataclass(frozen=True)
class RecordEntry:
    """An object that was published: digest and size of its content, and the store's tag."""

    sha256: str
    size: int
    tag: str


class PublicationRecord:
    """The object that lists what was published."""

    def __init__(
        self, objects: Objects, entries: dict[str, RecordEntry], pending: dict[str, int], tag: str | None
    ) -> None:
        self._objects = objects
        self.entries = entries
        self.pending = pending
        self._tag = tag
        self._sent: set[str] = set()

    @classmethod
    def read(cls, objects: Objects) -> PublicationRecord:
        """The record in the store, an empty one if there is none."""
        found = objects.read(RECORD, _MOST_RECORD)
        if found is None:
            return cls(objects, {}, {}, None)
        content, info = found
        try:
            document = parse_json(content)
            if document["schema"] != _SCHEMA:
                raise ValueError
            entries = {str(path): RecordEntry(*_texts(entry)) for path, entry in document["files"].items()}
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

    def sent(self, path: str, entry: RecordEntry) -> None:
        """Note what was written; a large file at once."""
        self.entries[path] = entry
        self._sent.add(path)
        if entry.size > _LARGE:
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
