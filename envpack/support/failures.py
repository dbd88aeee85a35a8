"""Full disks, missing permissions, unusable files and failures of other programs as errors for the user."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from envpack.support.errors import EnvironmentBuildError, StorageError

DISK_FULL_TEXT = "No space left on device"  # in the output of any program
_FULL = {errno.ENOSPC, errno.EDQUOT}
_LIMITS = {errno.ENOMEM, errno.EMFILE, errno.ENFILE}
_OF_FILES = {errno.EIO, errno.ESTALE, errno.EFBIG, errno.ENXIO, errno.ENODEV, errno.EREMOTEIO, errno.EROFS, errno.ELOOP}
_REFUSED = {errno.EACCES, errno.EROFS, errno.EPERM}


@contextlib.contextmanager
def storage_errors(where: Path) -> Iterator[None]:
    """Turn "disk full" and "permission denied" within the block into errors."""
    try:
        yield
    except shutil.Error as error:  # of shutil.copytree: a list of texts without error numbers
        if DISK_FULL_TEXT in str(error):
            raise disk_full(where) from None
        raise
    except OSError as error:
        if error.errno in _FULL:
            raise disk_full(where) from error
        if error.errno in _REFUSED:
            raise _refused(error, where) from error
        raise


def require_programs(folder: Path) -> None:
    """Refuse a folder, which need not exist, before programs are made there that could not run."""
    place = next(place for place in (folder.absolute(), *folder.absolute().parents) if place.is_dir())
    if os.statvfs(place).f_flag & os.ST_NOEXEC:
        what = "no program can run in this folder: its file system is mounted with noexec"
        fix = "set ENVPACK_CACHE_DIR to a folder on another one, or mount it without noexec"
        raise StorageError("noexec", what, fix, str(folder))


def storage_error(error: OSError) -> StorageError | None:
    """The error for what the system says of a file; None if it says nothing of a file."""
    if error.errno in _FULL:
        return disk_full(_name_of(error))
    if error.errno in _LIMITS or (error.errno == errno.EAGAIN and not _name_of(error)):
        return system_limit(error.strerror or "")
    if not _name_of(error):
        return _unnamed(error) if error.errno in _OF_FILES else None
    if error.errno in _REFUSED:
        return _refused(error, Path(_name_of(error)))
    fix = "look at what this path is, and give another one or repair it"
    return StorageError("file-unusable", f"cannot be read or written: {error.strerror}", fix, _name_of(error))


def _refused(error: OSError, where: Path) -> StorageError:
    what = f"cannot be read or written: {error.strerror}"
    fix = "change its permissions, or set ENVPACK_CACHE_DIR if it is in the cache"
    return StorageError("not-writable", what, fix, _name_of(error) or str(where))


def system_limit(reason: str) -> StorageError:
    """The error (kind ``system-limit``) for what the system refuses to any program: memory, processes, open files."""
    fix = "raise the limits of this shell or container (ulimit -a shows them), or end other programs"
    return StorageError("system-limit", f"the system refuses more of what this command needs: {reason}", fix)


def _unnamed(error: OSError) -> StorageError:
    fix = "check the disks and mounts of the repository, the cache and the folder for temporary files"
    return StorageError("file-unusable", f"a file cannot be read or written: {error.strerror}", fix)


def _name_of(error: OSError) -> str:
    return os.fsdecode(error.filename) if isinstance(error.filename, str | bytes | os.PathLike) else ""


def disk_full(where: Path | str) -> StorageError:
    """The error (kind ``disk-full``) for a full disk; the caller leaves no incomplete files behind."""
    fix = "free some space, or set ENVPACK_CACHE_DIR to a folder on another disk"
    return StorageError("disk-full", "the disk is full; nothing was changed", fix, str(where))


@dataclass(frozen=True)
class ErrorPattern:
    """A way in which a program fails.

    Attributes:
        kind: kind of the error.
        pattern: regular expression for the program's output; an empty one matches everything and ends a table.
        message: of the error; the fields of `error_from_output` and the named groups of ``pattern`` in braces.
        hint: what the user can do, with the same fields.
    """

    kind: str
    pattern: str
    message: str
    hint: str


def error_from_output(
    patterns: Iterable[ErrorPattern], output: str, *, storage: Path, where: str = "", details: str = "", **fields: str
) -> EnvironmentBuildError | StorageError:
    """The error for a program's output: a full disk if the output mentions one, else the first pattern that matches.

    The last pattern matches everything. The fields fill the braces in messages and hints.
    """
    if DISK_FULL_TEXT in output:
        return disk_full(storage)
    pattern, match = next((entry, match) for entry in patterns if (match := re.search(entry.pattern, output)))
    values = fields | match.groupdict()
    what = pattern.message.format(**values)
    return EnvironmentBuildError(pattern.kind, what, pattern.hint.format(**values), where, details=details)
