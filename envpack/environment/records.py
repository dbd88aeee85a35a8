"""Reads the records of installed packages, which others have written: conda's ``*.json``, pip's ``RECORD``."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from envpack.support.bounded_reading import read_json, read_text
from envpack.support.errors import EnvironmentBuildError
from envpack.support.text import may_be_path

_TEXTS_OF_PATH = ("_path", "path_type", "prefix_placeholder", "file_mode")


def conda_record_files(prefix: Path) -> list[Path]:
    """Conda's records in an environment, sorted by name."""
    return sorted((prefix / "conda-meta").glob("*.json"))


def read_conda_record(file: Path) -> dict[str, Any]:
    """Conda's record of an installed package; its name, version and files have the types that conda gives them."""
    try:
        record: dict[str, Any] = read_json(file)
        fits = isinstance(record, dict) and isinstance(record["name"], str) and isinstance(record["version"], str)
        fits = fits and _fits(record)
    except (OSError, ValueError, KeyError) as error:
        raise _damaged(file) from error
    if not fits:
        raise _damaged(file)
    return record


def _fits(record: dict[str, object]) -> bool:
    files, data = record.get("files", []), record.get("paths_data", {})
    paths = data.get("paths", []) if isinstance(data, dict) else None
    return (
        isinstance(files, list)
        and all(map(may_be_path, files))
        and isinstance(paths, list)
        and all(
            isinstance(path, dict) and all(path.get(key) is None or may_be_path(path[key]) for key in _TEXTS_OF_PATH)
            for path in paths
        )
    )


def record_paths(record: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What a record declares about each file of its package."""
    paths: list[dict[str, Any]] = record.get("paths_data", {}).get("paths", [])
    return paths


def read_record_rows(file: Path) -> list[list[str]]:
    """The rows of a wheel's ``RECORD``: path, digest and size of each file."""
    try:
        return [row for row in csv.reader(io.StringIO(read_text(file), newline="")) if row]
    except (OSError, ValueError, csv.Error) as error:
        raise _damaged(file) from error


def _damaged(file: Path) -> EnvironmentBuildError:
    fix = "choose another version of the package, or reinstall it if this is an environment of yours"
    return EnvironmentBuildError("record-damaged", "this record of an installed package cannot be read", fix, str(file))
