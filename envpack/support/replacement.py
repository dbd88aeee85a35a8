"""Replace files and folders in one step: at any moment, even after a kill, the old or the new one is complete.

Private temporary folders of killed processes are removed by the next process.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import re
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from envpack.support.errors import InputError
from envpack.support.folders import cache_root

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
_SUFFIX = ".partial"  # of temporary files and folders
_TEMPORARY = re.compile(rf"\.(.+)\.[a-z0-9_]{{8}}{re.escape(_SUFFIX)}", re.DOTALL)  # the destination's name is in it
# Error numbers of file systems that do not support hard links, or not between these two files.
LINK_UNSUPPORTED = {errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP}
# … that cannot exchange two folders in one step, such as NFS; and of kernels.
_EXCHANGE_UNSUPPORTED = {errno.EINVAL, errno.ENOSYS, errno.ENOTSUP}


@contextlib.contextmanager
def replaced_file(
    destination: Path, *, mode: int | None = None, keep: bool = False, durable: bool = True
) -> Iterator[Path]:
    """Yield a temporary path beside ``destination``; it becomes ``destination`` when the block succeeds.

    If the block raises (also for Ctrl-C), the temporary file is removed and ``destination`` is unchanged. Temporary
    files of killed processes are removed by the next call for the same destination.

    With ``keep`` the new file gets owner, group, permissions (unless ``mode`` is given) and extended attributes of the
    one that it replaces; only for content that is written to the temporary file itself, not linked there. ``durable``
    is false only for files whose content shows whether they are complete: they are not flushed to the disk.
    """
    remove_stale(destination)
    temporary, handle = _locked_temporary(destination, _make_file)
    try:
        with _errors_of(destination, temporary):
            yield temporary
            if not (keep and _copy_attributes(destination, temporary)) or mode is not None:
                temporary.chmod(0o644 if mode is None else mode)
            if durable:
                with temporary.open("rb") as written, _errors_of(destination):
                    os.fsync(written.fileno())
            temporary.replace(destination)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    finally:
        os.close(handle)


def _locked_temporary(destination: Path, make: Callable[[str, Path], str]) -> tuple[Path, int]:
    """Create a temporary file or folder and lock it, so that no other writer takes it for that of a killed process."""
    while True:
        with _errors_of(destination):
            name = make(f".{destination.name}.", destination.parent)
        with contextlib.suppress(FileNotFoundError):
            # Not for writing: a program that is open for writing cannot be started.
            handle = os.open(name, os.O_RDONLY)
            with contextlib.suppress(OSError):  # a file system without locks: no other process removes it
                fcntl.flock(handle, fcntl.LOCK_EX)
            if os.path.lexists(name):
                return Path(name), handle
            os.close(handle)  # another writer was faster and removed it


def _make_file(prefix: str, folder: Path) -> str:
    handle, name = tempfile.mkstemp(prefix=prefix, suffix=_SUFFIX, dir=folder)
    os.close(handle)
    return name


def _make_folder(prefix: str, folder: Path) -> str:
    return tempfile.mkdtemp(prefix=prefix, suffix=_SUFFIX, dir=folder)


@contextlib.contextmanager
def _errors_of(destination: Path, temporary: Path | None = None) -> Iterator[None]:
    """Let errors within the block name the destination: a temporary name says nothing to the user.

    With ``temporary`` only those that name it, or a file in it.
    """
    try:
        yield
    except OSError as error:
        if temporary is None:
            raise OSError(error.errno, error.strerror, str(destination)) from error
        names = [_moved(name, temporary, destination) for name in (error.filename, error.filename2)]
        if names == [error.filename, error.filename2]:
            raise
        raise OSError(error.errno, error.strerror, names[0], None, names[1]) from error


def _moved(name: object, folder: Path, destination: Path) -> object:
    if not isinstance(name, str | bytes | os.PathLike) or not Path(os.fsdecode(name)).is_relative_to(folder):
        return name
    return str(destination / Path(os.fsdecode(name)).relative_to(folder))


def _copy_attributes(source: Path, target: Path) -> bool:
    """Copy owner, group, permissions and extended attributes; whether ``source`` is a file that has them."""
    try:
        status = source.lstat()
    except FileNotFoundError:
        return False
    if not stat.S_ISREG(status.st_mode):
        return False
    for owner in (status.st_uid, -1):  # only root may give files away, but others to each of their groups
        with contextlib.suppress(PermissionError):
            os.chown(target, owner, status.st_gid)
            break
    target.chmod(stat.S_IMODE(status.st_mode))
    with contextlib.suppress(OSError):  # a file system without extended attributes
        for name in os.listxattr(source):
            with contextlib.suppress(OSError):  # attributes of the system, which it sets itself
                os.setxattr(target, name, os.getxattr(source, name))
    return True


def remove_stale_files(folder: Path, is_own: Callable[[Path], bool]) -> list[Path]:
    """Remove what `replaced_file` and `replaced_folder` left in a folder, whose processes are gone, for some names.

    Returns what belongs to another user, who alone may remove it.
    """
    closed = []
    for stale in folder.glob(f".*{_SUFFIX}"):
        if (name := _TEMPORARY.fullmatch(stale.name)) and is_own(folder / name[1]):
            remove_stale(folder / name[1])
            if os.path.lexists(stale) and not os.access(stale, os.W_OK):
                closed.append(stale)
    return closed


def remove_stale(destination: Path) -> None:
    """Remove temporary files and folders for a destination that are not locked: the process that made them is gone."""
    for stale in temporaries_of(destination):
        if stale == _old_of(destination):  # the only one, if the process was killed between two steps
            continue
        with contextlib.suppress(OSError):
            handle = os.open(stale, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                if try_lock(handle):
                    delete(stale)
            finally:
                os.close(handle)


def temporaries_of(destination: Path) -> Iterator[Path]:
    """The temporary files and folders that `replaced_file` and `replaced_folder` made for one destination."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError), os.scandir(destination.parent) as entries:
        named = ((_TEMPORARY.fullmatch(entry.name), entry) for entry in entries)
        found = [Path(entry.path) for name, entry in named if name and name[1] == destination.name]
        yield from found


def try_lock(handle: int) -> bool:
    """Lock an open file until it is closed; false if another process has it, or without locks in the file system."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def write_text(destination: Path, text: str, *, mode: int | None = None) -> None:
    """Replace ``destination`` by a file that contains ``text`` in UTF-8; owner and attributes stay as they were."""
    with replaced_file(destination, mode=mode, keep=True) as temporary:
        temporary.write_text(text, encoding="utf-8")


def keep_last(name: str, text: str, *, mode: int | None = None) -> str:
    """Write a text into the cache, in place of the last one of its name; ``""`` if it cannot be written."""
    file = cache_root() / name
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_text(file, text, mode=mode)
    except OSError:
        return ""
    return str(file)


def replace_link(destination: Path, target: str) -> None:
    """Replace ``destination`` by a symbolic link to ``target``, which need not exist."""
    with locked_folder(destination) as folder, _errors_of(destination):
        link = folder / "link"
        link.symlink_to(target)
        link.replace(destination)


def link_or_copy(source: str, target: str) -> None:
    """Make ``target`` a hard link to ``source``, or a copy where links are not supported; replaces ``target``."""
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
    removed. If the block raises, the temporary folder is removed and ``destination`` is unchanged. Those of killed
    processes are removed by the next call for the same destination.
    """
    with locked_folder(destination) as temporary, _errors_of(destination, temporary):
        temporary.chmod(0o755)
        yield temporary
        if os.path.lexists(destination):
            _exchange(temporary, destination)
        else:
            temporary.rename(destination)


@contextlib.contextmanager
def locked_folder(destination: Path) -> Iterator[Path]:
    """Yield an empty folder beside ``destination``, which is removed at the end under the name that it has here.

    It is locked as long as its process runs: that of another machine may have another cache.
    """
    remove_stale(destination)
    temporary, handle = _locked_temporary(destination, _make_folder)
    try:
        yield temporary
    finally:
        delete(temporary)
        os.close(handle)


def _exchange(first: Path, second: Path) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.renameat2(_AT_FDCWD, os.fsencode(first), _AT_FDCWD, os.fsencode(second), _RENAME_EXCHANGE) == 0:
        return
    code = ctypes.get_errno()
    if code not in _EXCHANGE_UNSUPPORTED:
        raise OSError(code, os.strerror(code), str(second))
    # In two steps. Killed between them, the process leaves the old folder for `remove_leftovers`.
    old = _old_of(second)
    second.rename(old)
    try:
        first.rename(second)
    except OSError:
        old.rename(second)
        raise
    old.rename(first)


def remove_folder(folder: Path) -> None:
    """Remove a folder in one step: a kill leaves all of it, or nothing under its name."""
    temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", suffix=_SUFFIX, dir=folder.parent))
    try:
        folder.rename(temporary)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def remove_leftovers(destination: Path) -> None:
    """Remove the temporary files and folders that killed processes left for ``destination``, which is complete then.

    The caller holds a lock for ``destination``, which a process with another cache does not know.
    """
    old = _old_of(destination)  # of a process that was killed where folders cannot be exchanged in one step
    if os.path.lexists(old):
        if os.path.lexists(destination):
            delete(old)  # the new one is complete
        else:
            old.rename(destination)
    for stale in temporaries_of(destination):
        if not _is_in_use(stale):
            delete(stale)


def _is_in_use(temporary: Path) -> bool:
    """Whether a process writes a temporary file or folder; not on a file system without locks."""
    with contextlib.suppress(OSError):
        handle = os.open(temporary, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(handle)
    return False


def delete(path: Path) -> None:
    """Remove a file or a folder, as far as this user may."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(FileNotFoundError, PermissionError):
            path.unlink()


def _old_of(destination: Path) -> Path:
    return destination.with_name(f".{destination.name}.replaced{_SUFFIX}")


def check_output(file: Path) -> None:
    """Refuse a file that the user named and `write_output` cannot write, before its content takes minutes to make."""
    folder = os.path.dirname(os.path.realpath(file))  # noqa: PTH120 - none of these raises an error for what is closed
    if not os.path.isdir(folder):  # noqa: PTH112
        what = "this folder does not exist, or this user may not enter it"
        raise InputError("output-missing", what, "create it, or name another one", folder)
    if os.path.isdir(file):  # noqa: PTH112
        raise InputError("output-missing", "this is a folder", "name a file in it", str(file))
    if not os.access(folder, os.W_OK) and (os.path.isfile(file) or not os.path.exists(file)):  # noqa: PTH110, PTH113
        what, fix = "no file can be made in this folder", "change its permissions, or name another one"
        raise InputError("output-missing", what, fix, folder)


def write_output(file: Path, content: bytes) -> None:
    """Write a file that the user named.

    A regular file is replaced in one step and keeps its owner and attributes; a link to one is followed. A device, a
    pipe, or a stream of this process such as ``/dev/stdout`` is written to.
    """
    status = file.stat() if file.exists() else None
    if status is not None and stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(file))
    if status is None or (stat.S_ISREG(status.st_mode) and not _is_open_stream(status)):
        with replaced_file(Path(os.path.realpath(file)), keep=True) as temporary:
            temporary.write_bytes(content)
    else:
        _write_to(file, content)


def _is_open_stream(status: os.stat_result) -> bool:
    """Whether a file is what standard output or the log goes to, as with ``--report /dev/stdout > page.html``."""
    for number in (1, 2):
        with contextlib.suppress(OSError):
            if os.path.samestat(os.fstat(number), status):
                return True
    return False


def _write_to(file: Path, content: bytes) -> None:
    sys.stdout.flush()
    # Without waiting for a reader, which may never come.
    handle = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK | os.O_NOCTTY)
    with os.fdopen(handle, "wb") as stream:
        fcntl.fcntl(handle, fcntl.F_SETFL, fcntl.fcntl(handle, fcntl.F_GETFL) & ~os.O_NONBLOCK)
        stream.write(content)
