"""Temporary folders that outlive nobody: not even somebody who was killed, and could not clean up."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from envpack.support.replacement import try_lock

_PREFIX = "envpack-scratch-"
_YOUNG = 60  # seconds; who has just made a folder may not have locked it yet


@contextlib.contextmanager
def temp_dir(purpose: str) -> Iterator[Path]:
    """Give an empty folder that only this user can look into, for the time of the block.

    What killed processes have left is removed first: some of it may hold passwords.

    Args:
        purpose: a word for its name.

    Raises:
        OSError: there is no room for it.

    """
    _remove_abandoned()
    with tempfile.TemporaryDirectory(prefix=f"{_PREFIX}{purpose}-") as name:
        handle = os.open(name, os.O_RDONLY)
        try:
            try_lock(handle)
            yield Path(name)
        finally:
            os.close(handle)


def _remove_abandoned() -> None:
    for stale in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):  # another one may be removing it too
            status = stale.lstat()
            if status.st_uid == os.getuid() and time.time() - status.st_mtime > _YOUNG and _is_abandoned(stale):
                shutil.rmtree(stale, ignore_errors=True)


def _is_abandoned(folder: Path) -> bool:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        return try_lock(handle)
    finally:
        os.close(handle)
