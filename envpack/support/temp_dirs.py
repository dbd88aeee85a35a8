"""Temporary folders, private ones and those in a folder to fill; the next process removes those of killed ones."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from envpack.support.errors import InputError
from envpack.support.replacement import replaced_folder, try_lock

_TEMPORARY = "envpack-scratch-"  # of folders that their owners have locked
_PREFIX, _SUFFIX = ".envpack-", ".partial"  # of folders in others
_PARTIAL = re.compile(rf"{re.escape(_PREFIX)}[a-z0-9_]{{8}}{re.escape(_SUFFIX)}")


@contextlib.contextmanager
def temp_dir(purpose: str) -> Iterator[Path]:
    """Yield an empty private folder for the block; those of killed processes, which may hold passwords, go first."""
    _remove_stale()
    # It gets its name only if it is locked, so that no other process takes it for that of a killed one.
    new = Path(tempfile.mkdtemp(prefix=f".{_TEMPORARY}{purpose}-"))
    handle = os.open(new, os.O_RDONLY)
    try:
        folder = new.rename(new.with_name(new.name[1:])) if try_lock(handle) else new
        try:
            yield folder
        finally:
            with contextlib.suppress(OSError):  # it is gone
                _delete_all(folder)
    finally:
        os.close(handle)


def _delete_all(folder: Path) -> None:
    """Delete a folder, also what a program has made read only in it."""
    # The clean-up of a temporary folder makes folders writable where that is needed.
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=_TEMPORARY) as made:
        folder.rename(Path(made) / folder.name)


def _remove_stale() -> None:
    for stale in Path(tempfile.gettempdir()).glob(f"{_TEMPORARY}*"):
        with contextlib.suppress(OSError):  # another process may be removing it too
            if stale.lstat().st_uid == os.getuid() and _is_unlocked(stale):
                _delete_all(stale)


def _is_unlocked(folder: Path) -> bool:
    """Whether no process has locked a folder; False if the file system does not support locks."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        return try_lock(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def partial_folder(directory: Path) -> Iterator[Path]:
    """Yield an empty folder in another one for the block; locked, since another machine may have another cache."""
    with tempfile.TemporaryDirectory(prefix=_PREFIX, suffix=_SUFFIX, dir=directory) as partial:
        handle = os.open(partial, os.O_RDONLY)
        try:
            try_lock(handle)
            yield Path(partial)
        finally:
            os.close(handle)


def partial_folders(directory: Path) -> list[Path]:
    """The folders that `partial_folder` made in another one, of processes that run and of killed ones."""
    found = (entry for entry in directory.iterdir() if _PARTIAL.fullmatch(entry.name))
    return [entry for entry in found if entry.is_dir() and not entry.is_symlink()]


def remove_partial_folders(directory: Path) -> None:
    for entry in partial_folders(directory):
        with contextlib.suppress(OSError):  # it is that of another user
            if _is_unlocked(entry):
                shutil.rmtree(entry)


def check_fillable(folder: Path) -> None:
    """Check that `filled_folder` may write a folder."""
    if folder.is_dir() and not {*folder.iterdir()}.difference(partial_folders(folder)):
        return
    if os.path.lexists(folder):
        what = "this folder is not empty" if folder.is_dir() else "this exists, and is no folder"
        raise InputError("not-empty", what, "name another folder", str(folder))


@contextlib.contextmanager
def filled_folder(destination: Path) -> Iterator[Path]:
    """Yield an empty temporary folder; what is in it becomes the content of ``destination`` when the block succeeds.

    An empty folder at ``destination`` stays: it may be a mount point, lie behind a link, or be the working folder of
    the user's shell.
    """
    if not destination.is_dir():
        with replaced_folder(destination) as temporary:
            yield temporary
        return
    remove_partial_folders(destination)
    with partial_folder(destination) as folder:
        yield folder
        for entry in sorted(folder.iterdir()):
            entry.rename(destination / entry.name)
