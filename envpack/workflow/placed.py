"""The environment that a model has now, by what its configuration names."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast

from envpack.archive import read_metadata
from envpack.repository import Model, environment_of
from envpack.settings import ArchiveFormat

_SUFFIXES = (".tar.gz", ".tar")


@dataclass(frozen=True)
class Placed:
    """An environment that envpack placed for a model; all fields are empty if there is none.

    Attributes:
        path: folder or archive.
        python: its Python minor version.
        archive_format: ``"dir"``, ``"tar.gz"`` or ``"tar"``.
    """

    path: Path | None = None
    python: str = ""
    archive_format: ArchiveFormat | Literal[""] = ""


def placed_environment(model: Model) -> Placed:
    """Find the environment that config.pbtxt names, if envpack made it: only then its metadata can be read."""
    path = None if model.is_ensemble else environment_of(model)
    if path is None:
        return Placed()
    python = str(read_metadata(path).get("minor", ""))
    if not python:
        return Placed()
    archive_format = next((suffix.removeprefix(".") for suffix in _SUFFIXES if path.name.endswith(suffix)), "dir")
    return Placed(path, python, cast("ArchiveFormat", archive_format))
