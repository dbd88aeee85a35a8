"""Temporary folders, private ones and those in a folder to fill; the next process removes those of killed ones."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

from envpack.support.errors import InputError
from envpack.support.replacement import locked_folder, remove_stale, replaced_folder, temporaries_of, try_lock

_TEMPORARY = "envpack-scratch-"  # of folders that their owners have locked
_PARTIAL = "envpack"  # in the names of folders in others


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
        with contextlib.suppress(OSError), _opened(stale) as handle:  # another process may be removing it too
            if os.fstat(handle).st_uid == os.getuid() and try_lock(handle):
                _delete_all(stale)


@contextlib.contextmanager
def _opened(folder: Path) -> Iterator[int]:
    """A folder, open to lock it; one that no process has locked is left by a killed one, and removed with the lock."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        yield handle
    finally:
        os.close(handle)


def partial_folder(directory: Path) -> AbstractContextManager[Path]:
    """Yield an empty folder in another one, without those of killed processes; it is removed after the block."""
    return locked_folder(directory / _PARTIAL)


def partial_folders(directory: Path) -> Iterator[Path]:
    """The folders that `partial_folder` made in another one, of processes that run and of killed ones."""
    return temporaries_of(directory / _PARTIAL)


def remove_partial_folders(directory: Path) -> None:
    remove_stale(directory / _PARTIAL)


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
    with partial_folder(destination) as folder:
        yield folder
        for entry in sorted(folder.iterdir()):
            entry.rename(destination / entry.name)
