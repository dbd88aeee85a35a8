"""Notices files of a placed folder that were changed since: by size and time stamp, by SHA-256 where these differ."""

from __future__ import annotations

import filecmp
import os
import stat
from pathlib import Path

from envpack.archive.tar_members import is_canonical
from envpack.environment import Entry, Index, differing, read_index, read_inventory
from envpack.support.folders import cache_folder

_COARSEST = 2_000_000_000  # nanoseconds between two time stamps of the coarsest file system, for copies


def suspect_files(folder: Path, key: str) -> tuple[Entry, ...]:
    """The files of a placed folder whose size or time stamp is not that of their original in the store; none is read.

    Without the original, for example on another machine, the size decides.
    """
    try:
        entries = read_inventory(folder)
    except (OSError, ValueError):
        return ()
    index = read_index(cache_folder("environments").absolute() / key)
    return tuple(
        entry
        for entry in entries
        if _is_plausible(entry) and not _looks_unchanged(f"{folder}/{entry.path}", entry, index)
    )


def changed_files(folder: Path, key: str) -> tuple[str, ...]:
    """The files of a placed folder that differ from its inventory, by path; only suspects are read.

    In place of a link may be what it leads to: object storage keeps no links.
    """
    suspects = suspect_files(folder, key)
    links = {entry.path: entry.target for entry in suspects if entry.kind == "link"}
    return tuple(
        path for path in differing(folder, suspects) if path not in links or not _is_copy(folder, path, links[path])
    )


def _is_copy(folder: Path, path: str, target: str) -> bool:
    """Whether something has the content of what a link in its place would lead to."""
    copy, original = folder / path, (folder / path).parent / target
    if copy.is_dir():
        return original.is_dir() and not copy.is_symlink()
    try:
        return not copy.is_symlink() and filecmp.cmp(copy, original, shallow=False)
    except OSError:
        return False


def _is_plausible(entry: Entry) -> bool:
    """Whether an entry can be one of envpack's; an inventory of others may name any path."""
    return isinstance(entry.path, str) and is_canonical(entry.path) and "\0" not in entry.path


def _looks_unchanged(path: str, entry: Entry, index: Index) -> bool:
    try:
        status = os.lstat(path)
        if entry.kind == "link":
            return stat.S_ISLNK(status.st_mode) and os.readlink(path) == entry.target  # noqa: PTH115 - text is faster
    except OSError:
        return False
    if entry.kind == "folder":
        return stat.S_ISDIR(status.st_mode)
    if not stat.S_ISREG(status.st_mode) or status.st_size != entry.size:
        return False
    if entry.path not in index:
        return True
    _, time, inode = index[entry.path]
    difference = abs(status.st_mtime_ns - time)
    return difference == 0 if status.st_ino == inode else difference < _COARSEST
