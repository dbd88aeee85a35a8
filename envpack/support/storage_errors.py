"""Full disks and missing permissions as errors for the user, because they are not bugs."""

from __future__ import annotations

import contextlib
import errno
import shutil
from collections.abc import Iterator
from pathlib import Path

from envpack.support.errors import EnvironmentBuildError

DISK_FULL_TEXT = "No space left on device"  # in the output of any program


@contextlib.contextmanager
def storage_errors(where: Path) -> Iterator[None]:
    """Turn "disk full" and "permission denied" within the block into errors.

    Args:
        where: file or folder that the error is about.

    Raises:
        EnvironmentBuildError: kind ``disk-full`` or ``not-writable``.
    """
    try:
        yield
    except shutil.Error as error:  # of shutil.copytree: a list of texts without error numbers
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
                hint="change its permissions, or set ENVPACK_CACHE_DIR if it is in the cache",
            ) from error
        raise


def disk_full(where: Path) -> EnvironmentBuildError:
    """The error (kind ``disk-full``) for a full disk; the caller leaves no incomplete files behind."""
    return EnvironmentBuildError(
        "the disk is full; nothing was changed",
        kind="disk-full",
        where=str(where),
        hint="free some space, or set ENVPACK_CACHE_DIR to a folder on another disk",
    )
