"""Running out of disk is the user's problem to solve, not a bug: say so."""

from __future__ import annotations

import contextlib
import errno
import shutil
from collections.abc import Iterator
from pathlib import Path

from envpack.support.errors import EnvironmentBuildError

DISK_FULL_TEXT = "No space left on device"


@contextlib.contextmanager
def storage_errors(where: Path) -> Iterator[None]:
    """Turn "disk full" and "not allowed" within the block into an `EnvironmentBuildError` about ``where``."""
    try:
        yield
    except shutil.Error as error:  # of a whole tree: a list of texts
        if DISK_FULL_TEXT in str(error):
            raise disk_full(where) from None
        raise
    except OSError as error:
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            raise disk_full(where) from error
        if error.errno in {errno.EACCES, errno.EROFS, errno.EPERM}:
            raise EnvironmentBuildError(
                f"cannot be read or written: {error.strerror}",
                kind="not-writable",
                where=str(error.filename or where),
                hint="give yourself the right to, or set ENVPACK_CACHE_DIR if it is in the cache",
            ) from error
        raise


def disk_full(where: Path) -> EnvironmentBuildError:
    """The error for a full disk; nothing half-written is left behind when it is raised."""
    return EnvironmentBuildError(
        "the disk is full; nothing was changed",
        kind="disk-full",
        where=str(where),
        hint="free some space, or set ENVPACK_CACHE_DIR to a folder on another disk",
    )
