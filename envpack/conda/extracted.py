"""Extracted conda packages in the cache: the engine installs what is there, and environments may be links to it."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from envpack.requirements.model import CondaPackage
from envpack.support.bounded_reading import read_json, read_text, sha256_of
from envpack.support.pool import map_batches
from envpack.support.replacement import remove_folder, write_text

# Digests of the files that differ from what a package says of them although it was just extracted; in its folder.
_AS_PUBLISHED = "info/envpack-as-published.json"


def folder_of(package: CondaPackage, packages: Path) -> Path:
    return packages / f"{package.name}-{package.version}-{package.build}"


def differing_files(folder: Path) -> list[str]:
    """The files of a package that are not as published, all of which are read; raises what damaged metadata raise."""
    read_json(folder / "info/index.json")
    if not (folder / "info/paths.json").exists():  # a package of before 2017, without digests
        listed = read_text(folder / "info/files").splitlines()
        return [path for path in listed if not os.path.lexists(folder / path)]
    records: list[dict[str, Any]] = read_json(folder / "info/paths.json")["paths"]
    known = dict(read_json(folder / _AS_PUBLISHED)) if (folder / _AS_PUBLISHED).exists() else {}
    same = [is_same for batch in map_batches(lambda record: _is_same(folder, record), records) for is_same in batch]
    differing = (str(record["_path"]) for record, is_same in zip(records, same, strict=True) if not is_same)
    return [path for path in differing if path not in known or known[path] != _digest(folder / path)]


def _digest(file: Path) -> str:
    return sha256_of(file) if file.is_file() else ""


def _is_same(folder: Path, record: dict[str, Any]) -> bool:
    file = folder / str(record["_path"])
    if record["path_type"] != "hardlink":
        return file.is_symlink() or file.is_dir()
    return file.is_file() and not file.is_symlink() and record.get("sha256") in (None, sha256_of(file))


@contextlib.contextmanager
def damaged_extracted_again(packages: Sequence[CondaPackage], folder: Path) -> Iterator[list[str]]:
    """Remove what was damaged before the engine installs in the block; yields the names of these packages.

    What differs after the block, too, was published so, and is not removed again.
    """
    damaged = [package for package in packages if _is_damaged(folder_of(package, folder))]
    for package in damaged:
        # No process writes this folder: the engine extracts elsewhere and renames. Another one may remove it first.
        with contextlib.suppress(FileNotFoundError):
            remove_folder(folder_of(package, folder))
    yield [package.name for package in damaged]
    for package in damaged:
        place = folder_of(package, folder)
        with contextlib.suppress(OSError, ValueError, LookupError, TypeError):
            if differing := differing_files(place):
                write_text(place / _AS_PUBLISHED, json.dumps({path: _digest(place / path) for path in differing}))


def _is_damaged(folder: Path) -> bool:
    try:
        return folder.exists() and bool(differing_files(folder))
    except (OSError, ValueError, LookupError, TypeError):
        return True
