"""Notices that the code or the configuration of a model changed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from envpack.repository import CONFIG_NAME, version_folders

# For each file of a model its path, time of change and size.
_State = frozenset[tuple[str, int, int]]


class SourceChanges:
    """The sources of all models of a repository."""

    def __init__(self, repository: Path) -> None:
        self._repository = repository
        self._states = self._read()

    def since_last(self) -> list[str]:
        """Names of the models whose sources changed since the last call, or since the beginning."""
        before, self._states = self._states, self._read()
        return sorted(
            name for name in before.keys() | self._states.keys() if before.get(name) != self._states.get(name)
        )

    def _read(self) -> dict[str, _State]:
        return {folder.name: frozenset(_files(folder)) for folder in self._repository.iterdir() if folder.is_dir()}


def _files(folder: Path) -> Iterator[tuple[str, int, int]]:
    with contextlib.suppress(OSError):  # removed meanwhile, or not readable: then it is no model
        sources = [source for version in version_folders(folder) for source in version.rglob("*.py")]
        for file in (folder / CONFIG_NAME, *sources):
            with contextlib.suppress(OSError):
                status = file.stat()
                yield str(file), status.st_mtime_ns, status.st_size
