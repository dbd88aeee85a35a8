"""Replace files and folders in one step: at any moment, even after a kill, the old or the new one is complete."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import glob
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
# Error numbers of file systems that do not support hard links, or not between these two files.
LINK_UNSUPPORTED = {errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP}


@contextlib.contextmanager
def replaced_file(destination: Path, *, mode: int = 0o644, durable: bool = True) -> Iterator[Path]:
    """Yield a temporary path beside ``destination``; it becomes ``destination`` when the block succeeds.

    If the block raises (also for Ctrl-C), the temporary file is removed and ``destination`` is unchanged. Temporary
    files of killed processes are removed by the next call for the same destination.

    Args:
        destination: the file to create or replace; its folder must exist.
        mode: permissions of the new file.
        durable: flush the content to the disk before the rename. Set it to false only for files whose content shows
            whether they are complete.

    Raises:
        OSError: the disk is full, or the folder is not writable.
    """
    _remove_stale_files(destination)
    handle, name = tempfile.mkstemp(prefix=f".{destination.name}.", suffix=".partial", dir=destination.parent)
    os.close(handle)
    temporary = Path(name)
    handle = os.open(temporary, os.O_RDONLY)  # not for writing: a program that is open for writing cannot be started
    try:
        try_lock(handle)
        yield temporary
        temporary.chmod(mode)
        if durable:
            with temporary.open("rb") as written:
                os.fsync(written.fileno())
        temporary.replace(destination)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    finally:
        os.close(handle)


def _remove_stale_files(destination: Path) -> None:
    """Remove temporary files of `replaced_file` that are not locked: the process that wrote them is gone."""
    for stale in destination.parent.glob(f".{glob.escape(destination.name)}.*.partial"):
        with contextlib.suppress(OSError):
            handle = os.open(stale, os.O_RDONLY | os.O_NOFOLLOW)
            try:
                if try_lock(handle):
                    stale.unlink()  # fails for folders, which `new_folder` and `replaced_folder` remove
            finally:
                os.close(handle)


def try_lock(handle: int) -> bool:
    """Lock an open file until it is closed.

    Returns:
        False if another process holds the lock, or the file system does not support locks.
    """
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def write_text(destination: Path, text: str, *, mode: int = 0o644) -> None:
    """Replace ``destination`` by a file that contains ``text`` in UTF-8.

    Raises:
        OSError: the disk is full, or the folder is not writable.
    """
    with replaced_file(destination, mode=mode) as temporary:
        temporary.write_text(text, encoding="utf-8")


def replace_link(destination: Path, target: str) -> None:
    """Replace ``destination`` by a symbolic link to ``target``, which need not exist.

    Raises:
        OSError: the folder is not writable.
    """
    with tempfile.TemporaryDirectory(
        prefix=f".{destination.name}.", suffix=".partial", dir=destination.parent
    ) as folder:
        link = Path(folder, "link")
        link.symlink_to(target)
        link.replace(destination)


def link_or_copy(source: str, target: str) -> None:
    """Make ``target`` a hard link to ``source``, or a copy where links are not supported; replaces ``target``.

    Raises:
        OSError: the disk is full, or the folder is not writable.
    """
    with contextlib.suppress(FileNotFoundError):
        os.unlink(target)  # noqa: PTH108 - text is faster than Path, and there may be thousands of files
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno not in LINK_UNSUPPORTED:
            raise
        shutil.copy2(source, target, follow_symlinks=False)


@contextlib.contextmanager
def replaced_folder(destination: Path) -> Iterator[Path]:
    """Yield an empty temporary folder beside ``destination``; it becomes ``destination`` when the block succeeds.

    An existing ``destination`` is exchanged with the new folder in one system call (Linux ``renameat2``) and then
    removed. If the block raises, the temporary folder is removed and ``destination`` is unchanged.

    Raises:
        OSError: the disk is full, or the folder is not writable.
    """
    temporary = Path(tempfile.mkdtemp(prefix=f".{destination.name}.", suffix=".partial", dir=destination.parent))
    try:
        temporary.chmod(0o755)
        yield temporary
        if destination.exists():
            _exchange(temporary, destination)
        else:
            temporary.rename(destination)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


@contextlib.contextmanager
def new_folder(destination: Path) -> Iterator[Path]:
    """Yield an empty temporary folder beside ``destination``; it becomes ``destination`` when the block succeeds.

    For folders that are created once and never changed. The caller holds a lock for ``destination``, so every other
    temporary folder for it was left by a killed process and is removed first.

    Raises:
        OSError: the disk is full, or the folder is not writable.
    """
    _remove_stale_folders(destination)
    temporary = Path(tempfile.mkdtemp(prefix=f".{destination.name}.partial-", dir=destination.parent))
    try:
        yield temporary
        temporary.chmod(0o755)
        temporary.rename(destination)
        _remove_stale_folders(destination)  # programs that outlived a killed process may have written again
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _remove_stale_folders(destination: Path) -> None:
    for stale in destination.parent.glob(f".{glob.escape(destination.name)}.partial-*"):
        shutil.rmtree(stale, ignore_errors=True)


def _exchange(first: Path, second: Path) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.renameat2(_AT_FDCWD, os.fsencode(first), _AT_FDCWD, os.fsencode(second), _RENAME_EXCHANGE) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), str(second))
