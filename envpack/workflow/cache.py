"""What envpack keeps in its cache folder, and giving back what nobody has used for long.

All of it can be made again. Folders beside models share files with the cache by hard links and lose nothing when the
cache does.
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
from envpack.support.progress import NoProgress, Progress
from envpack.support.storage_errors import storage_errors

_DAY = 86400.0  # seconds

# Folder in the cache, and what it holds; in these each entry can be removed by itself.
_ENTRIES = {
    "environments": "finished environments",
    "archives": "finished archives",
    "selections": "which files of environments leave the store",
    "bytecode": "byte code of packages",
    "needs": "what packages need of a system",
    "stubs": "compiled stubs",
    "conda-packages": "downloaded conda packages",
    "channel": "interpreters of this machine as conda packages",
    "wheels": "wheels of local projects",
    "solutions": "what was chosen for requirements",
    "prefixes": "what is known of existing prefixes",
}
# These are indexes of the entries within them, or are removed as a whole for another reason.
_WHOLE = {"conda-index": "indexes of conda channels"}
# Files beside an archive that say what it is, and where in it which package is: they go with it, and before it.
_BESIDE = (".segments", ".json")


@dataclass(frozen=True)
class CacheEntry:
    """One thing in the cache.

    Attributes:
        kind: folder of the cache that it is in, for example ``"environments"``.
        path: file or folder.
        label: what it is, for people.
        size: bytes on disk; files that several entries share count for the first.
        used: when it was made or used last, seconds since 1970.

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
    """Everything in the cache, by kind, within a kind the longest unused first.

    Args:
        cache: folder of the cache, `envpack.support.cache_locations.cache_root` by default.

    """
    root, seen = cache or cache_root(), set[tuple[int, int]]()
    found = []
    for kind in (*_ENTRIES, *_WHOLE):
        paths = _entries(root / kind) if kind in _ENTRIES else (path for path in [root / kind] if path.exists())
        entries = [CacheEntry(kind, path, _label(kind, path), _size(path, seen), _used(path)) for path in sorted(paths)]
        found += sorted(entries, key=lambda entry: entry.used)
    return tuple(found)


def describe_kind(kind: str) -> str:
    """What a kind of entry is, in words."""
    return (_ENTRIES | _WHOLE)[kind]


def prune_cache(
    days: float, *, cache: Path | None = None, dry_run: bool = False, progress: Progress | None = None
) -> Pruned:
    """Remove what was not used for a number of days, and what killed processes have left.

    An entry vanishes in one step; one that somebody is making or reading into place at this moment stays.

    Args:
        days: 0 removes everything.
        cache: folder of the cache.
        dry_run: only say what would be removed.
        progress: told of each entry.

    Raises:
        EnvironmentBuildError: kind ``not-writable``.

    """
    progress, root = progress or NoProgress(), cache or cache_root()
    limit = time.time() - days * _DAY
    old = [entry for entry in list_cache(root) if entry.used <= limit]
    removed = []
    with storage_errors(root):
        for entry in old:
            if dry_run or _remove(entry.path):
                removed.append(entry)
                progress.detail(f"{entry.kind}: {entry.label}")
        if not dry_run:
            for kind in (*_ENTRIES, *_WHOLE):
                _remove_leftovers(root / kind)
    return Pruned(tuple(removed), sum(entry.size for entry in removed))


def _entries(folder: Path) -> Iterator[Path]:
    with contextlib.suppress(FileNotFoundError):
        for path in folder.iterdir():
            hidden = path.name.startswith(".") or path.suffix == ".lock" or _is_beside(path)
            if not hidden or folder.name == "solutions":
                yield path


def _is_beside(path: Path) -> bool:
    """Whether a file only says something of an archive that is there."""
    return path.parent.name == "archives" and path.suffix in _BESIDE and path.with_suffix("").exists()


def _beside(path: Path) -> list[Path]:
    return [path.with_name(path.name + suffix) for suffix in _BESIDE] if path.parent.name == "archives" else []


def _label(kind: str, path: Path) -> str:
    environment = read_environment(path) if kind == "environments" else None
    if environment is None:
        return path.name
    names = ", ".join(package.name for package in environment.packages if package.name != "python")
    return f"{path.name[:8]} Python {environment.python}: {names or 'nothing else'}"


def _size(path: Path, seen: set[tuple[int, int]]) -> int:
    total = 0
    for file in (file for one in (path, *_beside(path)) for file in _files(str(one))):
        with contextlib.suppress(FileNotFoundError):
            status = os.lstat(file)
            if (status.st_dev, status.st_ino) not in seen:
                seen.add((status.st_dev, status.st_ino))
                total += status.st_blocks * 512
    return total


def _files(path: str) -> Iterator[str]:
    yield path
    if os.path.isdir(path) and not os.path.islink(path):  # noqa: PTH112, PTH114
        with os.scandir(path) as found:
            for one in found:
                if one.is_dir(follow_symlinks=False):
                    yield from _files(one.path)
                else:
                    yield one.path


def _used(path: Path) -> float:
    """The newest of the times that the entry, its lock and its first file tell."""
    times = [0.0]
    for told in (path, _lock_of(path), path / "envpack-environment.json"):
        with contextlib.suppress(OSError):
            status = told.lstat()
            times += [status.st_mtime] if told.is_dir() else [status.st_mtime, status.st_atime]
    return max(times)


def _lock_of(path: Path) -> Path:
    """The file that whoever makes an entry holds locked; stubs have it in the open."""
    plain = path.with_name(f"{path.name}.lock")
    return plain if plain.exists() else path.with_name(f".{path.name}.lock")


def _remove(path: Path) -> bool:
    """Remove one entry, unless somebody holds its lock; whether it is gone."""
    from filelock import FileLock, Timeout

    lock = FileLock(_lock_of(path))
    try:
        lock.acquire(blocking=False)
    except Timeout:
        return False
    try:
        for file in _beside(path):
            file.unlink(missing_ok=True)
        removed = path.with_name(f".{path.name}.removed-{os.getpid()}")
        with contextlib.suppress(FileNotFoundError):
            path.rename(removed)
        _delete(removed)
    finally:
        lock.release()
    return True


def _remove_leftovers(folder: Path) -> None:
    """Remove what is half made or half removed, by its name, if nobody is at it any more."""
    from filelock import FileLock, Timeout

    for mark in (".partial-", ".removed-"):
        for path in folder.glob(f".*{mark}*"):
            owner = path.name.rpartition(mark)[0]
            with contextlib.suppress(Timeout), FileLock(folder / f"{owner}.lock", blocking=False):
                _delete(path)


def _delete(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
