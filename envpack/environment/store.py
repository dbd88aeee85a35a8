"""The store of finished environments: their keys and manifests, and files that were changed.

An index beside each environment records what its files looked like when it was complete. Checking it takes one `lstat`
for each file. Files whose size, time stamp or inode differ are read: after the cache was copied, all do, and all are
intact.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from envpack.environment.inventory import INVENTORY, Entry, Package, read_inventory
from envpack.support.bounded_reading import read_json, sha256_of
from envpack.support.entry_locks import in_use
from envpack.support.errors import EnvironmentBuildError
from envpack.support.folders import CacheFolder, cache_folder
from envpack.support.links_and_modes import FILE, PROGRAM
from envpack.support.placed_files import MANIFEST
from envpack.support.pool import map_batches
from envpack.support.replacement import replaced_file

SCHEMA = 3


@dataclass(frozen=True, kw_only=True)
class Environment:
    """A finished environment in the store. It may be read, linked and packed, but never changed."""

    key: str  # key of its lock, which identifies its packages
    python: str  # full version, for example ``"3.8.18"``
    minor: str  # for example ``"3.8"``
    prefix: Path  # its folder in the store
    packages: tuple[Package, ...]  # installed packages, conda packages first
    glibc: str  # the oldest version of the C library that its files run with, for example ``"2.35"``
    glibcxx: str  # newest symbol version of libstdc++ that its files require, for example ``"3.4.29"``; ``""`` for none
    platform: str  # ``"linux-64"`` or ``"linux-aarch64"``
    size: int  # bytes of all its files
    content: str  # SHA-256 of its inventory (`envpack.environment.inventory`); the same content has the same digest
    placeholders: int = 0  # number of files that contain the prefix placeholder
    fresh: bool = False  # whether this call built it


_TYPES = {
    **dict.fromkeys(("key", "python", "minor", "glibc", "glibcxx", "platform", "content"), str),
    **dict.fromkeys(("size", "stand_ins"), int),
}


def read_environment(folder: Path) -> Environment | None:
    """The environment in a folder, ``None`` if there is none, or it is not complete or damaged."""
    try:
        manifest = read_json(folder / MANIFEST)
        return _from_manifest(manifest, folder) if manifest["schema"] == SCHEMA else None
    except (FileNotFoundError, NotADirectoryError, ValueError, LookupError, TypeError):
        return None


@contextlib.contextmanager
def environment_in_use(environment: Environment) -> Iterator[None]:
    with in_use(environment.prefix):
        if not (environment.prefix / MANIFEST).exists():
            raise disappeared(environment.prefix)
        yield


def disappeared(folder: Path) -> EnvironmentBuildError:
    fix = "let nothing else write to the cache while it builds, and build again"
    return EnvironmentBuildError("environment-broken", "the environment disappeared from the store", fix, str(folder))


def _from_manifest(manifest: dict[str, Any], folder: Path) -> Environment:
    values = {name: manifest[name] for name in _TYPES}
    if any(type(values[name]) is not kind for name, kind in _TYPES.items()):
        raise TypeError("a value of another type")
    packages = tuple(Package(**package) for package in manifest["packages"])
    return Environment(prefix=folder, packages=packages, placeholders=values.pop("stand_ins"), **values)


_INDEX_SCHEMA = 2
# Folders of the cache whose files environments are links to.
_SHARING: tuple[CacheFolder, ...] = ("conda-packages", "bytecode")

# Size, time stamp in nanoseconds, inode and mode of each file and link, by path.
Index = Mapping[str, Sequence[int]]


def index_of(prefix: Path) -> Path:
    return prefix.with_name(f".{prefix.name}.index")


def write_index(prefix: Path, entries: Iterable[Entry] | None = None) -> None:
    """Record size, time stamp, inode and mode of every file, if the inventory can be read and the store written."""
    with contextlib.suppress(OSError, ValueError):
        entries = read_inventory(prefix) if entries is None else entries
        paths = [INVENTORY, *(entry.path for entry in entries if entry.kind != "folder")]
        index = {path: _stamp(f"{prefix}/{path}") for path in paths}
        with replaced_file(index_of(prefix), durable=False) as partial:
            partial.write_text(json.dumps({"schema": _INDEX_SCHEMA, "files": index}), encoding="utf-8")


def read_index(prefix: Path) -> Index:
    """The index of an environment in the store; empty if there is none, or it is damaged."""
    try:
        index = read_json(index_of(prefix))
        files: dict[str, list[int]] = index["files"] if index["schema"] == _INDEX_SCHEMA else {}
        return files if all(len(stamp) == 4 for stamp in files.values()) else {}
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return {}


def damaged_files(prefix: Path) -> tuple[str, ...]:
    """The files of an environment in the store that differ from its inventory, by path.

    Unless an index is missing or differs, no file is read. A missing or outdated index of an intact environment is
    written again, and modes are restored: who changes that of a hard link changes it for all models.
    """
    index = read_index(prefix)
    if index and all(_unchanged(f"{prefix}/{path}", stamp) for path, stamp in index.items()):
        return ()
    try:
        content = (prefix / INVENTORY).read_bytes()
        if read_json(prefix / MANIFEST)["content"] != hashlib.sha256(content).hexdigest():
            return (INVENTORY,)
        entries = read_inventory(prefix)
    except (OSError, ValueError, LookupError, TypeError):
        return (INVENTORY,)
    suspects = [e for e in entries if e.path not in index or not _unchanged(f"{prefix}/{e.path}", index[e.path])]
    damaged = differing(prefix, suspects)
    if not damaged:
        _restore_modes(prefix, suspects)
        write_index(prefix, entries)
    return damaged


def _restore_modes(prefix: Path, entries: Iterable[Entry]) -> None:
    for entry in entries:
        if entry.kind in ("file", "program"):
            with contextlib.suppress(PermissionError):  # of another user, whose cache this is as well
                os.chmod(f"{prefix}/{entry.path}", PROGRAM if entry.kind == "program" else FILE)  # noqa: PTH101


def differing(folder: Path, entries: Sequence[Entry]) -> tuple[str, ...]:
    """The entries whose file, link or folder is missing or has another content, by path; all files are read."""
    same = chain.from_iterable(map_batches(lambda entry: _is_as_listed(f"{folder}/{entry.path}", entry), entries))
    return tuple(entry.path for entry, intact in zip(entries, same, strict=True) if not intact)


def discard(prefix: Path, damaged: Iterable[str], cache: Path) -> None:
    """Remove a damaged environment, whose lock the caller holds, and what shares its damaged files."""
    inodes = set()
    for path in damaged:
        with contextlib.suppress(OSError):
            inodes.add(_identity(f"{prefix}/{path}"))
    for kind in _SHARING:
        for entry in [*cache_folder(kind, cache).glob("[!.]*")]:
            if entry.is_dir() and not entry.is_symlink() and _contains(entry, inodes):
                shutil.rmtree(entry, ignore_errors=True)
    index_of(prefix).unlink(missing_ok=True)
    shutil.rmtree(prefix, ignore_errors=True)


def _contains(folder: Path, inodes: set[tuple[int, int]]) -> bool:
    return any(
        _identity(os.path.join(root, name)) in inodes  # noqa: PTH118
        for root, _, names in os.walk(folder)
        for name in names
    )


def _identity(path: str) -> tuple[int, int]:
    status = os.lstat(path)
    return status.st_dev, status.st_ino


def _stamp(path: str) -> tuple[int, int, int, int]:
    status = os.lstat(path)
    return status.st_size, status.st_mtime_ns, status.st_ino, status.st_mode


def _unchanged(path: str, stamp: Sequence[int]) -> bool:
    try:
        return _stamp(path) == tuple(stamp)
    except OSError:
        return False


def _is_as_listed(path: str, entry: Entry) -> bool:
    try:
        if entry.kind == "folder":
            return os.path.isdir(path)  # noqa: PTH112
        if entry.kind == "link":
            return os.readlink(path) == entry.target  # noqa: PTH115
        status = os.lstat(path)
        if not stat.S_ISREG(status.st_mode) or status.st_size != entry.size:
            return False
        return sha256_of(Path(path)) == entry.sha256
    except OSError:
        return False
