"""What a store copies itself when it is published to: large files whose content lies in the store, or is sent first."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from envpack.deployment.objects.digests import Described
from envpack.deployment.objects.record import PublicationRecord
from envpack.store.objects import ObjectInfo, Objects

LEAST = 1 << 20  # bytes of a file; one copy takes three requests


class Copies:
    """Copies for one publication. Its methods may be called from several threads.

    Only a path at which nothing lies gets a copy, so that what is there afterwards can be nothing else.
    """

    def __init__(self, objects: Objects, present: Collection[str]) -> None:
        self._objects = objects
        self._present = present
        self._sources: dict[str, tuple[Objects, ObjectInfo]] = {}
        self._works = objects.location.folder is None
        self._made: list[Described] = []

    @property
    def size(self) -> int:
        """Bytes of the copies that were made."""
        return sum(file.size for file in self._made)

    def take_from(self, objects: Objects, record: PublicationRecord) -> None:
        """Use what a publication has sent to the same bucket."""
        for path, entry in record.entries.items():
            if entry.size >= LEAST:
                self._sources[entry.sha256] = (objects, ObjectInfo(path, entry.size, 0.0, entry.tag))

    def take(self, objects: Objects, file: Described, tag: str) -> None:
        """Use an object that was written just now."""
        if file.size >= LEAST:
            self._sources[file.sha256] = (objects, ObjectInfo(file.path, file.size, 0.0, tag))

    def may_help(self, files: Sequence[Described]) -> bool:
        """Whether an earlier publication can save something."""
        return any(self._can_be_copy(file) and file.sha256 not in self._sources for file in files)

    def split(self, files: Sequence[Described]) -> tuple[list[Described], list[Described]]:
        """The files that have to be sent, and those that the store can copy then."""
        known = set(self._sources)
        sent: list[Described] = []
        copied: list[Described] = []
        for file in files:
            (copied if self._can_be_copy(file) and file.sha256 in known else sent).append(file)
            known.add(file.sha256)
        return sent, copied

    def made(self, file: Described) -> str | None:
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

    def _can_be_copy(self, file: Described) -> bool:
        return self._works and file.size >= LEAST and file.path not in self._present
