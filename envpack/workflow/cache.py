"""The entries of the cache folder, and the removal of those that were not used for long.

All of it can be made again. Folders beside models share files with the cache by hard links, and lose nothing when the
cache is pruned.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from envpack.environment import read_environment
from envpack.support.cache_locations import cache_root
from envpack.support.entry_locks import ingredients_removable, last_used, removable
from envpack.support.progress import NoProgress, Progress
from envpack.support.storage_errors import storage_errors

_DAY = 86400.0  # seconds

# Folders of the cache whose entries can be removed one by one, with what an entry is.
_PRODUCTS = {
    "environments": "installed environments",
    "archives": "packed environments",
    "selections": "lists of files that environments are placed with",
    "stubs": "compiled stubs",
    "publications": "digests of files that were published",
    "transfers": "interrupted transfers from and to stores",
}
# … those of what environments are made of, which stay while any environment is resolved or built.
_INGREDIENTS = {
    "bytecode": "byte code of packages",
    "needs": "system requirements of packages",
    "conda-packages": "downloaded conda packages",
    "channel": "interpreters of this machine as conda packages",
    "pythons": "interpreters that uv fetched",
    "wheels": "wheels of local projects",
    "solutions": "locks of requirements without a lockfile",
    "prefixes": "digests of existing prefixes",
}
_ENTRIES = _PRODUCTS | _INGREDIENTS
# Folders that are removed as a whole; ingredients, too.
_WHOLE = {"conda-index": "indexes of conda channels"}
# Files beside an archive that describe it and index its packages; they are removed with it, and before it.
_BESIDE = (".segments", ".json")


@dataclass(frozen=True)
class CacheEntry:
    """One thing in the cache.

    Attributes:
        kind: folder of the cache that it is in, for example ``"environments"``.
        path: file or folder.
        label: what it is, as text.
        size: bytes on disk; files that several entries share count for the first.
        used: when it was made or last used, seconds since 1970.
    """

    kind: str
    path: Path
    label: str
    size: int
    used: float


@dataclass(frozen=True)
class Pruned:
    """What `prune_cache` removed, or would remove."""

    entries: tuple[CacheEntry, ...]
    size: int


def list_cache(cache: Path | None = None) -> tuple[CacheEntry, ...]:
    """Every entry of the cache, by kind; within a kind the longest unused comes first.

    Args:
        cache: folder of the cache, `envpack.support.cache_locations.cache_root` by default.

    """
    root, seen = cache or cache_root(), set[tuple[int, int]]()
    found = []
    for kind in (*_ENTRIES, *_WHOLE):
        paths = _entries(root / kind) if kind in _ENTRIES else (path for path in [root / kind] if path.exists())
        entries = [
            CacheEntry(kind, path, _label(kind, path), _size(path, seen), last_used(path)) for path in sorted(paths)
        ]
        found += sorted(entries, key=lambda entry: entry.used)
    return tuple(found)


def describe_kind(kind: str) -> str:
    """What the entries of a kind are, as a plural noun."""
    return (_ENTRIES | _WHOLE)[kind]


def prune_cache(
    days: float, *, cache: Path | None = None, dry_run: bool = False, progress: Progress | None = None
) -> Pruned:
    """Remove entries unused for a number of days, and what killed processes have left.

    An entry is removed in one step. An entry that another process makes or uses stays.

    Args:
        days: 0 removes everything.
        cache: folder of the cache.
        dry_run: list what would be removed, and remove nothing.
        progress: receives each entry.

    Raises:
        StorageError: kind ``not-writable``.

    """
    progress, root = progress or NoProgress(), cache or cache_root()
    limit = time.time() - days * _DAY
    old = [entry for entry in list_cache(root) if entry.used <= limit]
    removed = []
    if dry_run or not root.is_dir():
        removed = old
    else:
        with storage_errors(root), ingredients_removable(root) as idle:
            kinds = _ENTRIES | _WHOLE if idle else _PRODUCTS
            removed = [entry for entry in old if entry.kind in kinds and _remove(entry.path, limit)]
            for folder in (root, *(root / kind for kind in kinds)):
                _remove_leftovers(folder)
            if not idle:
                progress.detail("what environments are made of stays: another process uses it")
    for entry in removed:
        progress.detail(f"{entry.kind}: {entry.label}")
    return Pruned(tuple(removed), sum(entry.size for entry in removed))


def _entries(folder: Path) -> Iterator[Path]:
    with contextlib.suppress(FileNotFoundError):
        for path in folder.iterdir():
            is_lock = path.suffix == ".lock" and folder.name != "solutions"  # of other programs, and earlier versions
            if not (path.name.startswith(".") or is_lock or _is_beside(path)):
                yield path


def _is_beside(path: Path) -> bool:
    """Whether a file describes an archive that exists."""
    return path.parent.name == "archives" and path.suffix in _BESIDE and path.with_suffix("").exists()


def _beside(path: Path) -> list[Path]:
    suffixes = (*_BESIDE, ".lock") if path.parent.name == "archives" else (".lock",)
    return [path.with_name(f".{path.name}.index"), *(path.with_name(path.name + suffix) for suffix in suffixes)]


def _label(kind: str, path: Path) -> str:
    environment = read_environment(path) if kind == "environments" else None
    if environment is None:
        return path.name
    names = ", ".join(package.name for package in environment.packages if package.name != "python")
    return f"{path.name[:8]} Python {environment.python}: {names or 'no packages'}"


def _size(path: Path, seen: set[tuple[int, int]]) -> int:
    total = 0
    for file in (file for root in (path, *_beside(path)) for file in _files(str(root))):
        with contextlib.suppress(FileNotFoundError):
            status = os.lstat(file)
            if (status.st_dev, status.st_ino) not in seen:
                seen.add((status.st_dev, status.st_ino))
                total += status.st_blocks * 512
    return total


def _files(path: str) -> Iterator[str]:
    yield path
    if os.path.isdir(path) and not os.path.islink(path):  # noqa: PTH112, PTH114
        with os.scandir(path) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    yield from _files(entry.path)
                else:
                    yield entry.path


def _remove(path: Path, limit: float) -> bool:
    """Remove one entry, unless a process makes or uses it, or has used it since it was listed; whether it is gone."""
    with removable(path) as free:
        if not free or last_used(path) > limit:
            return False
        for file in _beside(path):
            file.unlink(missing_ok=True)
        removed = path.with_name(f".{path.name}.removed-{os.getpid()}")
        with contextlib.suppress(FileNotFoundError):
            path.rename(removed)
        _delete(removed)
    return True


def _remove_leftovers(folder: Path) -> None:
    """Remove half-made and half-removed entries, and locks of entries that are gone, by their names."""
    for mark in (".partial-", ".removed-"):
        for path in folder.glob(f".*{mark}*"):
            with removable(folder / path.name.rpartition(mark)[0].removeprefix(".")) as free:
                if free:
                    _delete(path)
    for lock in folder.glob(".*.lock"):
        with removable(folder / lock.name.removeprefix(".").removesuffix(".lock")):
            pass  # the lock of an entry that does not exist is removed with it


def _delete(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
