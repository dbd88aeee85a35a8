"""Replace files and folders in one step: whoever looks, or is killed, at any moment finds the old or the new one."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import glob
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2


@contextlib.contextmanager
def replaced_file(destination: Path, *, mode: int = 0o644, durable: bool = True) -> Iterator[Path]:
    """Give a temporary path beside ``destination``; when the block ends well it becomes ``destination``.

    The content is flushed to the disk before the rename; ``durable=False`` is for files that tell by themselves
    whether they are complete. If the block raises (also for Ctrl-C) the temporary file is removed and ``destination``
    stays as it was. What a killed process has left is removed by the next one.

    Raises:
        OSError: the disk is full, or the folder cannot be written to.
    """
    _remove_abandoned(destination)
    handle, name = tempfile.mkstemp(prefix=f".{destination.name}.", suffix=".partial", dir=destination.parent)
    os.close(handle)
    temporary = Path(name)
    handle = os.open(temporary, os.O_RDONLY)  # a program that is open for writing could not be started yet
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


def _remove_abandoned(destination: Path) -> None:
    """Remove temporary files of `replaced_file` that nobody holds a lock on, since who wrote them is gone."""
    for stale in destination.parent.glob(f".{glob.escape(destination.name)}.*.partial"):
        with contextlib.suppress(OSError):
            handle = os.open(stale, os.O_RDONLY | os.O_NOFOLLOW)
            try:
                if try_lock(handle):
                    stale.unlink()  # refused for folders, which others look after
            finally:
                os.close(handle)


def try_lock(handle: int) -> bool:
    """Lock an open file until it is closed; False if somebody else has, or if the file system knows no locks."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def write_text(destination: Path, text: str, *, mode: int = 0o644) -> None:
    """Replace ``destination`` by a file holding ``text`` (UTF-8)."""
    with replaced_file(destination, mode=mode) as temporary:
        temporary.write_text(text, encoding="utf-8")


def replace_link(destination: Path, target: str) -> None:
    """Replace ``destination`` by a symbolic link to ``target``, which need not exist."""
    with tempfile.TemporaryDirectory(
        prefix=f".{destination.name}.", suffix=".partial", dir=destination.parent
    ) as folder:
        link = Path(folder, "link")
        link.symlink_to(target)
        link.replace(destination)


@contextlib.contextmanager
def replaced_folder(destination: Path) -> Iterator[Path]:
    """Give an empty temporary folder beside ``destination``; when the block ends well it becomes ``destination``.

    An existing ``destination`` is exchanged with the new folder in one system call (Linux ``renameat2``) and then
    removed. If the block raises, the temporary folder is removed and ``destination`` stays as it was.
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
    """Give an empty temporary folder beside ``destination``; when the block ends well it becomes ``destination``.

    For folders that are made once and never changed. The caller holds a lock, so what killed processes have left
    behind can be told from what others are doing, and is removed first.
    """
    _remove_stale(destination)
    temporary = Path(tempfile.mkdtemp(prefix=f".{destination.name}.partial-", dir=destination.parent))
    try:
        yield temporary
        temporary.chmod(0o755)
        temporary.rename(destination)
        _remove_stale(destination)  # programs that outlived a killed process may have written once more
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _remove_stale(destination: Path) -> None:
    for stale in destination.parent.glob(f".{glob.escape(destination.name)}.partial-*"):
        shutil.rmtree(stale, ignore_errors=True)


def _exchange(one: Path, other: Path) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.renameat2(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), str(other))
