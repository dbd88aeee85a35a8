"""Private temporary folders, which the next process removes if theirs was killed."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from envpack.support.replacement import try_lock

_TEMPORARY = "envpack-scratch-"  # of folders that their owners have locked


@contextlib.contextmanager
def temp_dir(purpose: str) -> Iterator[Path]:
    """Yield an empty folder that only this user can read; it is removed after the block.

    Folders of killed processes are removed first, because they can contain passwords.

    Args:
        purpose: a word for the folder's name.

    Raises:
        OSError: the folder cannot be created.
    """
    _remove_stale()
    # It gets its name once it is locked, so that no other process takes it for that of a killed one.
    new = Path(tempfile.mkdtemp(prefix=f".{_TEMPORARY}{purpose}-"))
    handle = os.open(new, os.O_RDONLY)
    try:
        try_lock(handle)
        folder = new.rename(new.with_name(new.name[1:]))
        try:
            yield folder
        finally:
            with contextlib.suppress(OSError):  # it is gone
                _delete_all(folder)
    finally:
        os.close(handle)


def _delete_all(folder: Path) -> None:
    """Delete a folder, also what a program has made read only in it."""
    # Its own clean-up makes folders writable where that is needed.
    made = tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{_TEMPORARY}")
    folder.rename(Path(made.name) / folder.name)
    made.cleanup()


def _remove_stale() -> None:
    for stale in Path(tempfile.gettempdir()).glob(f"{_TEMPORARY}*"):
        with contextlib.suppress(OSError):  # another process may be removing it too
            if stale.lstat().st_uid == os.getuid() and is_unlocked(stale):
                _delete_all(stale)


def is_unlocked(folder: Path) -> bool:
    """Whether no process has locked a folder; False if the file system does not support locks."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        return try_lock(handle)
    finally:
        os.close(handle)
