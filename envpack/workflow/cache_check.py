"""Verifies the digests of everything in the cache that has one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from envpack.archive import archive_metadata_file, sha256_of
from envpack.environment import INVENTORY, MANIFEST, differing, read_inventory
from envpack.stub import changed_stub_files
from envpack.support.bounded_reading import read_json
from envpack.support.cache_locations import cache_root
from envpack.support.entry_locks import in_use
from envpack.support.progress import NoProgress, Progress
from envpack.support.text import counted
from envpack.workflow.cache import list_cache


@dataclass(frozen=True)
class DamagedEntry:
    """An entry of the cache that is not what was stored.

    Attributes:
        kind: folder of the cache that it is in, for example ``"environments"``.
        path: file or folder.
        files: what differs or is missing, relative to ``path``; empty if ``path`` is a file, or cannot be read.
    """

    kind: str
    path: Path
    files: tuple[str, ...]


@dataclass(frozen=True)
class CacheCheck:
    """What `verify_cache` found.

    Attributes:
        checked: number of entries whose digests were verified.
        damaged: those that differ.
    """

    checked: int
    damaged: tuple[DamagedEntry, ...]


class _Damage(Exception):  # noqa: N818 - it carries a result
    """An entry differs in the files that are its arguments."""


def verify_cache(cache: Path | None = None, *, progress: Progress | None = None) -> CacheCheck:
    """Read every entry of the cache that has a digest, and compare. This is no use of the entries.

    Byte code, requirements of packages and indexes of channels have no digests; builds write them again.

    Args:
        cache: folder of the cache, `envpack.support.cache_locations.cache_root` by default.
        progress: receives each kind of entry, and each damaged one.
    """
    progress = progress or NoProgress()
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


def _checked(kind: str, path: Path, check: Callable[[Path], None]) -> DamagedEntry | None:
    with in_use(path, recorded=False):
        if not path.exists():
            return None  # it was removed meanwhile
        try:
            check(path)
        except _Damage as damage:
            return DamagedEntry(kind, path, damage.args)
        except (OSError, ValueError, LookupError, TypeError, AttributeError):
            return DamagedEntry(kind, path, ())
    return None


def _check_environment(prefix: Path) -> None:
    if read_json(prefix / MANIFEST)["content"] != sha256_of(prefix / INVENTORY):
        raise _Damage(INVENTORY)
    _raise_for(differing(prefix, read_inventory(prefix)))


def _check_archive(archive: Path) -> None:
    if read_json(archive_metadata_file(archive))["sha256"] != sha256_of(archive):
        raise _Damage


def _check_selection(folder: Path) -> None:
    if read_json(folder / MANIFEST)["content"] != sha256_of(folder / INVENTORY):
        raise _Damage(INVENTORY)


def _check_stub(folder: Path) -> None:
    _raise_for(changed_stub_files(folder))


def _check_conda_package(folder: Path) -> None:
    _raise_for(path for path, record in _paths_of(folder) if not _matches(folder / path, record))


def _paths_of(folder: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    for record in read_json(folder / "info/paths.json")["paths"]:
        yield str(record["_path"]), record


def _matches(file: Path, record: dict[str, Any]) -> bool:
    if record["path_type"] != "hardlink":
        return file.is_symlink() or file.exists()
    return file.is_file() and sha256_of(file) == record["sha256"]


def _check_channel(folder: Path) -> None:
    description = read_json(folder / "envpack-package.json")
    if sha256_of(folder / description["file"]) != description["sha256"]:
        raise _Damage(description["file"])


def _check_wheel(folder: Path) -> None:
    _raise_for(wheel.name for wheel in folder.glob("*.whl") if not sha256_of(wheel).startswith(folder.name))


def _raise_for(files: Iterator[str] | tuple[str, ...]) -> None:
    found = tuple(files)
    if found:
        raise _Damage(*found)


_CHECKS: dict[str, Callable[[Path], None]] = {
    "environments": _check_environment,
    "archives": _check_archive,
    "selections": _check_selection,
    "stubs": _check_stub,
    "conda-packages": _check_conda_package,
    "channel": _check_channel,
    "wheels": _check_wheel,
}
