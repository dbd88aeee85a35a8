"""One lock for each entry of the cache: a process that makes, uses or removes the entry holds it.

The lock of the entry ``NAME`` is the file ``.NAME.lock`` beside it. It is held shared to use the entry, and exclusively
to make or remove it. Its time stamp records the last use: access times are not reliable, and listing entries must not
change them. The file is removed together with its entry, so a lock on a file that has no name any more does not count.

What environments are made of (packages, byte code, channels, solutions) has one more lock for all of it, because a
build uses hundreds of these entries, some of them through other programs.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TypeVar

from envpack.support.errors import StorageError, storage_errors
from envpack.support.processes import raise_if_stopped
from envpack.support.replacement import delete

_PAUSE = 0.05  # seconds between two attempts
INGREDIENTS = "ingredients"
_Made = TypeVar("_Made")


def lock_of(entry: Path) -> Path:
    return entry.with_name(f".{entry.name}.lock")


@contextlib.contextmanager
def in_use(entry: Path, *, recorded: bool = True) -> Iterator[None]:
    """Keep an entry as it is during the block, and record its use. The caller checks in the block whether it exists.

    In a cache that this user cannot write to, nothing is recorded, and an entry without lock file is not locked. A look
    at an entry that is no use of it is not ``recorded``.
    """
    handle = _locked(lock_of(entry), fcntl.LOCK_SH, lambda: None)
    try:
        if handle is not None and recorded:
            _touch(handle)
        yield
    finally:
        if handle is not None:
            os.close(handle)


@contextlib.contextmanager
def being_made(entry: Path, waiting: Callable[[], object] = lambda: None) -> Iterator[None]:
    """Let no other process make, use or remove an entry during the block; ``waiting`` is called once if one does."""
    entry.parent.mkdir(parents=True, exist_ok=True)
    handle = _locked(lock_of(entry), fcntl.LOCK_EX, waiting)
    try:
        yield
        if handle is not None:
            _touch(handle)
    finally:
        if handle is not None:
            os.close(handle)


@contextlib.contextmanager
def removable(entry: Path) -> Iterator[bool]:
    """Yield whether no process makes or uses an entry; after the block, the lock goes with an entry that is gone."""
    file = lock_of(entry)
    handle = _opened_without_use(file)
    try:
        if not _try(handle, fcntl.LOCK_EX) or not os.fstat(handle).st_nlink:
            yield False
            return
        yield True
        if not os.path.lexists(entry):
            delete(file)
    finally:
        os.close(handle)


@contextlib.contextmanager
def kept(find: Callable[[], _Made], entry_of: Callable[[_Made], Path]) -> Iterator[_Made]:
    """Find or make something in the cache, again if its entry is removed before it is locked, and keep that."""
    while True:
        found = find()
        with in_use(entry_of(found)):
            if entry_of(found).exists():
                yield found
                return


_ATTEMPTS = 5  # to make an entry that others may remove


@contextlib.contextmanager
def ensured(entry: Path, is_there: Callable[[], bool], make: Callable[[], object]) -> Iterator[None]:
    """Make an entry unless it is there, which is looked at under its lock, and keep it during the block."""
    for _ in range(_ATTEMPTS):
        with in_use(entry):
            if is_there():
                yield
                return
        with storage_errors(entry), being_made(entry):
            if not is_there():
                make()
    what = "the entry is incomplete after five attempts to make it: the cache is damaged, or another process removes it"
    fix = "run `envpack cache verify`, remove what it names, and run the command again"
    raise StorageError("file-unusable", what, fix, str(entry))


def ingredients_in_use(cache: Path) -> AbstractContextManager[None]:
    return in_use(cache / INGREDIENTS)


def ingredients_removable(cache: Path) -> AbstractContextManager[bool]:
    """As `removable`, for all that environments are made of."""
    return removable(cache / INGREDIENTS)


def mark_used(entry: Path) -> None:
    with contextlib.suppress(OSError):  # a cache that this user cannot write to
        if entry.exists():
            lock_of(entry).touch()


def last_used(entry: Path) -> float:
    """When an entry was made or last used, in seconds since 1970; 0 if it does not exist."""
    times = [0.0]
    for file in (entry, lock_of(entry)):
        with contextlib.suppress(OSError):
            times.append(file.lstat().st_mtime)
    return max(times)


def _locked(file: Path, operation: int, waiting: Callable[[], object]) -> int | None:
    """Lock a file, which is created if it is missing; ``None`` if it is missing and cannot be created for reading."""
    reported = False
    while True:
        handle = _opened(file, operation)
        if handle is None:
            return None
        try:
            while not _try(handle, operation):
                if not reported:
                    waiting()
                reported = True
                raise_if_stopped()
                time.sleep(_PAUSE)
        except BaseException:
            os.close(handle)
            raise
        if os.fstat(handle).st_nlink:
            return handle
        os.close(handle)  # it was removed with its entry


def _opened(file: Path, operation: int) -> int | None:
    try:
        return _opened_without_use(file)
    except OSError:
        if operation == fcntl.LOCK_EX:
            raise
    return None


def _opened_without_use(file: Path) -> int:
    """Open a lock file; one that this creates records no use. To lock one of another user, it suffices to read it."""
    while True:
        try:
            handle = os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
        except OSError as refused:
            try:
                return os.open(file, os.O_RDWR)  # without O_CREAT, for fs.protected_regular
            except FileNotFoundError:
                if not isinstance(refused, FileExistsError) or file.is_symlink():
                    raise refused from None  # else it was removed with its entry
            except OSError:
                return os.open(file, os.O_RDONLY)
        else:
            os.utime(handle, (0, 0))
            return handle


def _try(handle: int, operation: int) -> bool:
    """Whether the lock was taken; also on file systems that have no locks."""
    try:
        fcntl.flock(handle, operation | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def _touch(handle: int) -> None:
    with contextlib.suppress(OSError):  # the file belongs to another user
        os.utime(handle)
