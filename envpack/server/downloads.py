"""Finds the folders to which a server downloads models from an object store: it names them at random."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from envpack.repository import CONFIG_NAME
from envpack.server.interface import Process

_MODEL_FILE, _ARGUMENTS = 1, 9
_MOST = 4 << 20  # bytes of a file that is compared


class Downloads:
    """The folders of a server's downloads, by a copy of the repository."""

    def __init__(self, copy: Path) -> None:
        """Start without any."""
        self._copy = Path(os.path.realpath(copy))
        self._models: dict[str, str] = {}

    def model_at(self, folder: str) -> str:
        """Name of the model that was downloaded to a folder, ``""`` if it is unknown: the one with the same files."""
        if folder not in self._models:
            found = next((model.name for model in self._folders() if _same(model, Path(folder))), "")
            if not found:
                return ""
            self._models[folder] = found
        return self._models[folder]

    def of(self, path: Path, processes: Iterable[Process]) -> str:
        """Where a file of the copy is on the server, by what its processes run; ``""`` if that is unknown."""
        real = Path(os.path.realpath(path))
        if not real.is_relative_to(self._copy) or real == self._copy:
            return ""
        model, *rest = real.relative_to(self._copy).parts
        for process in processes:
            if len(process.arguments) >= _ARGUMENTS:
                folder = PurePosixPath(process.arguments[_MODEL_FILE]).parent.parent
                if self.model_at(str(folder)) == model:
                    return str(folder.joinpath(*rest))
        return ""

    def _folders(self) -> list[Path]:
        return sorted(entry for entry in self._copy.iterdir() if entry.is_dir())


def _same(model: Path, folder: Path) -> bool:
    """Whether a folder has the configuration and the code of a model."""
    names = [CONFIG_NAME, *(str(file.relative_to(model)) for file in model.glob("*/model.py"))]
    return all(_content(model / name) == _content(folder / name) for name in names)


def _content(file: Path) -> bytes | None:
    try:
        with file.open("rb") as content:
            return content.read(_MOST)
    except OSError:
        return None
