"""The entries of the cache folder, the removal of those that were not used for long, and their digests.

All of it can be made again. Folders beside models share files with the cache by hard links, and lose nothing when the
cache is pruned. The conda channel of this machine's interpreters is in it, too.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from envpack.settings.table import Settings
from envpack.support.bounded_reading import read_json, sha256_of
from envpack.support.entry_locks import INGREDIENTS, in_use, ingredients_removable, last_used, lock_of, removable
from envpack.support.errors import UsageError, storage_errors
from envpack.support.folders import KINDS, CacheFolder, cache_root
from envpack.support.placed_files import MANIFEST
from envpack.support.progress import SILENT, Progress
from envpack.support.replacement import remove_folder, remove_stale_files
from envpack.support.temp_dirs import remove_partial_folders
from envpack.support.text import counted

if TYPE_CHECKING:
    from envpack.conda.channels import ChannelPackage

_DAY = 86400.0  # seconds

# The user's folder may hold other things. What envpack makes has a digest in its name, or a lock beside it.
_OWN_NAME = re.compile(r"(?:.*-)?[0-9a-f]{16,64}(?:-stripped)?(?:\.[a-z.]+)?|images\.json")
_IN_ROOT = {*KINDS, INGREDIENTS, "interpreters.json", "last-server.log"}

# Files beside an archive that describe it and index its packages; they are removed with it, and before it.
_BESIDE = (".segments", ".json")


@dataclass(frozen=True)
class CacheEntry:
    """One thing in the cache."""

    kind: CacheFolder  # folder of the cache that it is in, for example "environments"
    path: Path  # file or folder
    label: str  # what it is, as text
    size: int  # bytes on disk; files that several entries share count for the first
    used: float  # when it was made or last used, seconds since 1970


@dataclass(frozen=True)
class Pruned:
    """What `prune_cache` removed, or would remove."""

    entries: tuple[CacheEntry, ...]
    size: int


def list_cache(cache: Path | None = None) -> tuple[CacheEntry, ...]:
    """Every entry of the cache, by kind; within a kind the longest unused comes first.

    Args:
        cache: folder of the cache, `envpack.support.folders.cache_root` by default.
    """
    root, seen = cache or cache_root(), set[tuple[int, int]]()
    found = []
    for kind, description in KINDS.items():
        folder = root / kind
        paths = _entries(folder) if not description.is_whole else [folder] if folder.exists() else []
        entries = [
            CacheEntry(kind, path, _label(kind, path), _size(path, seen), last_used(path)) for path in sorted(paths)
        ]
        found += sorted(entries, key=lambda entry: entry.used)
    return tuple(found)


def prune_cache(
    days: float, *, cache: Path | None = None, dry_run: bool = False, progress: Progress = SILENT
) -> Pruned:
    """Remove entries unused for a number of days, and what killed processes have left.

    An entry is removed in one step. An entry that another process makes or uses stays.

    Args:
        days: 0 removes everything.
        cache: folder of the cache.
        dry_run: list what would be removed, and remove nothing.
        progress: receives each entry.

    Raises:
        UsageError: ``days`` is negative.
        StorageError: kind ``not-writable``.
    """
    if days < 0:
        raise UsageError("usage", f"days is {days:g}", "give 0 or more")
    root = cache or cache_root()
    limit = time.time() - days * _DAY
    unused = [entry for entry in list_cache(root) if entry.used <= limit and _is_own(entry.path)]
    old = [entry for entry in unused if _is_of_this_user(entry.path)]
    if len(old) < len(unused):
        progress.detail(f"those of other users stay: {counted(len(unused) - len(old), 'entry')}")
    removed = []
    if dry_run or not root.is_dir():
        removed = old
    else:
        with storage_errors(root), ingredients_removable(root) as idle:
            kinds = {kind for kind, description in KINDS.items() if idle or not description.is_ingredient}
            removed = [entry for entry in old if entry.kind in kinds and _remove(entry.path, limit)]
            _remove_leftovers(root, lambda path: path.name in _IN_ROOT)
            for kind in kinds:
                _remove_leftovers(root / kind, _has_own_name)
            if not idle:
                progress.detail("what environments are made of stays: another process uses it")
    for entry in removed:
        progress.detail(f"{entry.kind}: {entry.label}")
    return Pruned(tuple(removed), sum(entry.size for entry in removed))


def _entries(folder: Path) -> Iterator[Path]:
    with contextlib.suppress(FileNotFoundError):
        for path in folder.iterdir():
            is_lock = path.suffix == ".lock" and folder.name != "solutions"  # of other programs
            if not (path.name.startswith(".") or is_lock or _is_beside(path)):
                yield path


def _has_own_name(path: Path) -> bool:
    return _OWN_NAME.fullmatch(path.name) is not None


def _is_own(path: Path) -> bool:
    return _has_own_name(path) or lock_of(path).exists()


def _is_of_this_user(path: Path) -> bool:
    with contextlib.suppress(FileNotFoundError):  # it was removed meanwhile
        return os.getuid() in (0, path.lstat().st_uid)
    return False


def _is_beside(path: Path) -> bool:
    return path.parent.name == "archives" and path.suffix in _BESIDE and path.with_suffix("").exists()


def _beside(path: Path) -> list[Path]:
    suffixes = (*_BESIDE, ".lock") if path.parent.name == "archives" else (".lock",)
    return [path.with_name(f".{path.name}.index"), *(path.with_name(path.name + suffix) for suffix in suffixes)]


def _label(kind: CacheFolder, path: Path) -> str:
    if kind != "environments":
        return path.name
    from envpack.environment.store import read_environment  # a listing of anything else is instant without it

    environment = read_environment(path)
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
        if path.is_dir() and not path.is_symlink():
            remove_folder(path)
        else:
            path.unlink(missing_ok=True)
    return True


def _remove_leftovers(folder: Path, is_own: Callable[[Path], bool]) -> None:
    """Remove half-made and half-removed entries, and locks of entries that are gone, by their names."""
    remove_stale_files(folder, is_own)
    if folder.is_dir():
        remove_partial_folders(folder)
    for lock in folder.glob(".*.lock"):
        entry = folder / lock.name.removeprefix(".").removesuffix(".lock")
        if is_own(entry):
            with removable(entry):
                pass  # the lock of an entry that does not exist is removed with it


@dataclass(frozen=True)
class DamagedEntry:
    """An entry of the cache that is not what was stored."""

    kind: CacheFolder
    path: Path
    files: tuple[str, ...]  # what differs or is missing below the path; empty if that is a file, or cannot be read


@dataclass(frozen=True)
class CacheCheck:
    """What `verify_cache` found.

    Attributes:
        checked: number of entries whose digests were verified.
        damaged: those that differ.
    """

    checked: int
    damaged: tuple[DamagedEntry, ...]


_Check = Callable[[Path], Iterable[str]]
"""Returns the files of an entry that differ, as paths below it; raises what reading it raises."""


def verify_cache(cache: Path | None = None, *, progress: Progress = SILENT) -> CacheCheck:
    """Read every entry of the cache that has a digest, and compare. This is no use of the entries.

    Requirements of packages and indexes of channels have no digests; builds write them again.

    Args:
        cache: folder of the cache, `envpack.support.folders.cache_root` by default.
        progress: receives each kind of entry, and each damaged one.
    """
    entries = [entry for entry in list_cache(cache or cache_root()) if entry.kind in _CHECKS]
    damaged = []
    for kind, check in _CHECKS.items():
        of_kind = [entry for entry in entries if entry.kind == kind]
        if not of_kind:
            continue
        progress.begin(f"verify {kind}")
        found = [result for result in (_checked(kind, entry.path, check) for entry in of_kind) if result]
        for entry in found:
            progress.detail(f"damaged: {entry.path}{f': {entry.files[0]}' if entry.files else ''}")
        damaged += found
        progress.end(f"{counted(len(of_kind), 'entry')}, {len(found)} damaged")
    return CacheCheck(len(entries), tuple(damaged))


def _checked(kind: CacheFolder, path: Path, check: _Check) -> DamagedEntry | None:
    with in_use(path, recorded=False):
        if not os.path.lexists(path):
            return None  # it was removed meanwhile
        try:
            files = tuple(check(path))
        except (OSError, ValueError, LookupError, TypeError, AttributeError):
            return DamagedEntry(kind, path, ())
        return DamagedEntry(kind, path, files if path.is_dir() else ()) if files else None


def _check_environment(prefix: Path) -> Iterable[str]:
    from envpack.environment.inventory import INVENTORY, read_inventory
    from envpack.environment.store import differing

    if read_json(prefix / MANIFEST)["content"] != sha256_of(prefix / INVENTORY):
        return (INVENTORY,)
    return differing(prefix, read_inventory(prefix))


def _check_archive(archive: Path) -> Iterable[str]:
    from envpack.archive.manifest import archive_metadata_file

    is_whole = read_json(archive_metadata_file(archive))["sha256"] == sha256_of(archive)
    return () if is_whole else (archive.name,)


def _check_selection(folder: Path) -> Iterable[str]:
    from envpack.archive.manifest import is_cached_as
    from envpack.environment.inventory import INVENTORY

    manifest = read_json(folder / MANIFEST)
    if manifest["content"] != sha256_of(folder / INVENTORY):
        return (INVENTORY,)
    return () if is_cached_as(manifest, folder.name) else (MANIFEST,)


def _check_stub(folder: Path) -> Iterable[str]:
    from envpack.stub.recipe import changed_stub_files

    return changed_stub_files(folder)


def _check_conda_package(folder: Path) -> Iterable[str]:
    from envpack.conda.extracted import differing_files

    # Packages without a SHA-256 are in folders of their own.
    packages = [folder] if (folder / "info").exists() else [*_entries(folder)] or [folder]
    return (str((package / path).relative_to(folder)) for package in packages for path in differing_files(package))


def _check_bytecode(folder: Path) -> Iterable[str]:
    from envpack.conda.bytecode import differing_files

    return differing_files(folder)


def _check_channel(folder: Path) -> Iterable[str]:
    description = read_json(folder / "envpack-package.json")
    is_whole = sha256_of(folder / description["file"]) == description["sha256"]
    return () if is_whole else (description["file"],)


def _check_wheel(folder: Path) -> Iterable[str]:
    return (wheel.name for wheel in folder.glob("*.whl") if not sha256_of(wheel).startswith(folder.name))


_CHECKS: dict[CacheFolder, _Check] = {
    "environments": _check_environment,
    "archives": _check_archive,
    "selections": _check_selection,
    "stubs": _check_stub,
    "conda-packages": _check_conda_package,
    "bytecode": _check_bytecode,
    "channel": _check_channel,
    "wheels": _check_wheel,
}


@dataclass(frozen=True, kw_only=True)
class AddedPython:
    """An interpreter in a channel."""

    channel: str
    package: ChannelPackage
    changed: bool


def add_python(python: str, place: Path | None, folder: Path | None, said: Settings, progress: Progress) -> AddedPython:
    from envpack.conda.channels import add_interpreter
    from envpack.conda.choice import interpreter_for
    from envpack.conda.interpreters import interpreter_at

    if place:
        interpreter = interpreter_at(place, python)
    else:
        interpreter = interpreter_for(python, preference=said.settled().python_preference, progress=progress)
    channel = _channel(folder)
    package, changed = add_interpreter(interpreter, channel, progress=progress)
    progress.begin(f"Python {package.version} of {interpreter.prefix}")
    progress.end("added" if changed else "up to date")
    return AddedPython(channel=channel.as_uri(), package=package, changed=changed)


def list_channel(folder: Path | None) -> tuple[str, Sequence[ChannelPackage]]:
    from envpack.conda.channels import read_channel

    channel = _channel(folder)
    return channel.as_uri(), read_channel(channel)


def _channel(folder: Path | None) -> Path:
    from envpack.conda.channels import default_channel

    return (folder or default_channel()).absolute()
