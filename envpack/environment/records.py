"""Reads the records of installed packages, which others have written: conda's ``*.json``, pip's ``RECORD``."""

from __future__ import annotations

import base64
import csv
import io
import os
from collections import Counter
from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from envpack.support.bounded_reading import read_json, read_text, sha256_of
from envpack.support.errors import EnvironmentBuildError
from envpack.support.pool import map_batches
from envpack.support.text import may_be_path, normalise_name

_TEXTS_OF_PATH = ("_path", "path_type", "prefix_placeholder", "file_mode")


def conda_record_files(prefix: Path) -> list[Path]:
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
    paths: list[dict[str, Any]] = record.get("paths_data", {}).get("paths", [])
    return paths


def read_record_rows(file: Path) -> list[list[str]]:
    """The rows of a wheel's ``RECORD``: path, digest and size of each file."""
    try:
        return [row for row in csv.reader(io.StringIO(read_text(file), newline="")) if row]
    except (OSError, ValueError, csv.Error) as error:
        raise _damaged(file) from error


def damaged_wheels(prefix: Path, minor: str) -> frozenset[str]:
    """Packages with a file, of theirs alone, that is not as the ``RECORD`` of their wheel says."""
    site = f"lib/python{minor}/site-packages"
    listed = [
        (os.path.normpath(f"{prefix}/{site}/{row[0]}"), row[1].removeprefix("sha256="), record.parent)
        for record in sorted((prefix / site).glob("*.dist-info/RECORD"))
        if is_from_uv(record)
        for row in read_record_rows(record)
        if len(row) > 1 and row[1].startswith("sha256=")
    ]
    owners = Counter(file for file, _, _ in listed)
    checked = [(file, digest, folder) for file, digest, folder in listed if owners[file] == 1]
    same = chain.from_iterable(map_batches(lambda row: _has_digest(row[0], row[1]), checked))
    folders = {folder for (_, _, folder), is_same in zip(checked, same, strict=True) if not is_same}
    return frozenset(normalise_name(folder.name.partition("-")[0]) for folder in folders)


def is_from_uv(record: Path) -> bool:
    installer = record.with_name("INSTALLER")
    return installer.is_file() and read_text(installer, errors="replace").strip() == "uv"


def _has_digest(file: str, digest: str) -> bool:
    try:
        found = bytes.fromhex(sha256_of(Path(file)))
    except (OSError, ValueError):  # it is missing, or no path
        return False
    return base64.urlsafe_b64encode(found).rstrip(b"=").decode() == digest


def _damaged(file: Path) -> EnvironmentBuildError:
    fix = "choose another version of the package, or reinstall it if this is an environment of yours"
    return EnvironmentBuildError("record-damaged", "this record of an installed package cannot be read", fix, str(file))
