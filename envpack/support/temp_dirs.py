"""Temporary folders, private ones and those in a folder to fill; the next process removes those of killed ones."""

from __future__ import annotations

import contextlib
import fcntl
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


@contextlib.contextmanager
def partial_folder(directory: Path) -> Iterator[Path]:
    """Yield an empty folder in another one; it is removed after the block.

    It is locked as long as its process runs: that of another machine may have another cache.
    """
    with contextlib.ExitStack() as made:
        while True:
            folder = Path(
                made.enter_context(tempfile.TemporaryDirectory(prefix=_PREFIX, suffix=_SUFFIX, dir=directory))
            )
            with contextlib.suppress(FileNotFoundError):
                handle = os.open(folder, os.O_RDONLY)
                made.callback(os.close, handle)
                with contextlib.suppress(OSError):  # a file system without locks: no other process removes it
                    fcntl.flock(handle, fcntl.LOCK_EX)
                if folder.exists():
                    break
            # Another process took it for that of a killed one before it was locked.
        yield folder


def partial_folders(directory: Path) -> list[Path]:
    """The folders that `partial_folder` made in another one, of processes that run and of killed ones."""
    found = (entry for entry in directory.iterdir() if _PARTIAL.fullmatch(entry.name))
    return [entry for entry in found if entry.is_dir() and not entry.is_symlink()]


def remove_partial_folders(directory: Path) -> None:
    for entry in partial_folders(directory):
        with contextlib.suppress(OSError), _opened(entry) as handle:  # it may be that of another user
            if try_lock(handle):
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
