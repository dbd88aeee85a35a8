"""Replace files and folders in one step: whoever looks, or is killed, at any moment finds the old or the new one."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2


@contextlib.contextmanager
def replaced_file(destination: Path, *, mode: int = 0o644) -> Iterator[Path]:
    """Give a temporary path beside ``destination``; when the block ends well it becomes ``destination``.

    The content is flushed to the disk before the rename. If the block raises (also for Ctrl-C) the temporary file is
    removed and ``destination`` stays as it was.

    Raises:
        OSError: the disk is full, or the folder cannot be written to.
    """
    handle, name = tempfile.mkstemp(prefix=f".{destination.name}.", suffix=".partial", dir=destination.parent)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        temporary.chmod(mode)
        with temporary.open("rb") as written:
            os.fsync(written.fileno())
        temporary.replace(destination)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_text(destination: Path, text: str, *, mode: int = 0o644) -> None:
    """Replace ``destination`` by a file holding ``text`` (UTF-8)."""
    with replaced_file(destination, mode=mode) as temporary:
        temporary.write_text(text, encoding="utf-8")


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
    for stale in destination.parent.glob(f".{destination.name}.partial-*"):
        shutil.rmtree(stale, ignore_errors=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{destination.name}.partial-", dir=destination.parent))
    try:
        yield temporary
        temporary.chmod(0o755)
        temporary.rename(destination)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _exchange(one: Path, other: Path) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.renameat2(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), str(other))
