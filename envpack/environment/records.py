"""Reads the records of installed packages, which others have written: conda's ``*.json``, pip's ``RECORD``."""

from __future__ import annotations

import csv
import io
import os
from pathlib import Path
from typing import TypedDict, cast

from envpack.support.bounded_reading import read_json, read_text
from envpack.support.errors import EnvironmentBuildError


class CondaPath(TypedDict, total=False):
    """A file of a package in conda's record of it; conda declares more keys."""

    _path: str
    path_type: str
    sha256: str
    sha256_in_prefix: str
    prefix_placeholder: str
    file_mode: str


class CondaPaths(TypedDict, total=False):
    """The files of a package in conda's record of it."""

    paths: list[CondaPath]


class CondaRecord(TypedDict, total=False):
    """Conda's record of an installed package, ``conda-meta/*.json``; conda declares more keys."""

    name: str
    version: str
    build: str
    subdir: str
    url: str
    files: list[str]
    paths_data: CondaPaths


_TEXTS_OF_PATH = ("_path", "path_type", "prefix_placeholder", "file_mode")


def conda_record_files(prefix: Path) -> list[Path]:
    """Conda's records in an environment, sorted by name."""
    return sorted((prefix / "conda-meta").glob("*.json"))


def read_conda_record(file: Path) -> CondaRecord:
    """Conda's record of a package; what `CondaRecord` declares has the declared types."""
    try:
        record = read_json(file)
        fits = isinstance(record, dict) and isinstance(record["name"], str) and isinstance(record["version"], str)
        fits = fits and _fits(record)
    except (OSError, ValueError, KeyError) as error:
        raise _damaged(file) from error
    if not fits:
        raise _damaged(file)
    return cast("CondaRecord", record)


def _fits(record: dict[str, object]) -> bool:
    files, data = record.get("files", []), record.get("paths_data", {})
    paths = data.get("paths", []) if isinstance(data, dict) else None
    return (
        isinstance(files, list)
        and all(map(_is_name, files))
        and isinstance(paths, list)
        and all(
            isinstance(path, dict) and all(path.get(key) is None or _is_name(path[key]) for key in _TEXTS_OF_PATH)
            for path in paths
        )
    )


def _is_name(value: object) -> bool:
    """Whether a value is a text that can be in the name of a file."""
    try:
        return isinstance(value, str) and b"\0" not in os.fsencode(value)
    except UnicodeEncodeError:
        return False


def record_paths(record: CondaRecord) -> list[CondaPath]:
    """What a record declares about each file of its package."""
    return record.get("paths_data", {}).get("paths", [])


def read_record_rows(file: Path) -> list[list[str]]:
    """The rows of a wheel's ``RECORD``: path, digest and size of each file."""
    try:
        return [row for row in csv.reader(io.StringIO(read_text(file), newline="")) if row]
    except (OSError, ValueError, csv.Error) as error:
        raise _damaged(file) from error


def _damaged(file: Path) -> EnvironmentBuildError:
    fix = "choose another version of the package, or reinstall it if this is an environment of yours"
    return EnvironmentBuildError("record-damaged", "this record of an installed package cannot be read", fix, str(file))
