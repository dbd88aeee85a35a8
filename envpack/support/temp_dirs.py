"""Private temporary folders; those of killed processes are removed by the next process."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from envpack.support.replacement import try_lock

_PREFIX = "envpack-scratch-"  # shared with earlier versions, whose folders are removed too
_MIN_AGE = 60  # seconds; the process that creates a younger folder may not have locked it yet


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
    with tempfile.TemporaryDirectory(prefix=f"{_PREFIX}{purpose}-") as name:
        handle = os.open(name, os.O_RDONLY)
        try:
            try_lock(handle)
            yield Path(name)
        finally:
            os.close(handle)


def _remove_stale() -> None:
    for stale in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):  # another process may be removing it too
            status = stale.lstat()
            if status.st_uid == os.getuid() and time.time() - status.st_mtime > _MIN_AGE and _is_unlocked(stale):
                shutil.rmtree(stale, ignore_errors=True)


def _is_unlocked(folder: Path) -> bool:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        return try_lock(handle)
    finally:
        os.close(handle)
