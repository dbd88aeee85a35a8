"""How files of the cache appear elsewhere: with which permissions, and as clones, hard links or copies.

Permissions are set, never inherited from the umask of the user who builds. A server runs as another user, so every user
can read files and enter folders. Files in the cache are read-only: models have hard links to them, and no model may
change what others have.

A clone has its own inode and shares the disk blocks until somebody writes. A hard link is the same file under another
name. A copy shares nothing.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from envpack.support.errors import NO_LINKS, StorageError
from envpack.support.replacement import LINK_UNSUPPORTED

FILE = 0o444
PROGRAM = 0o555
FOLDER = 0o755


def protect(folder: str | os.PathLike[str]) -> None:
    """Make all files below a folder read-only, and let every user read them and enter the folders."""
    os.chmod(folder, FOLDER)  # noqa: PTH101 - text is faster than Path, and there may be thousands of files
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                protect(entry.path)
            elif entry.is_file(follow_symlinks=False):
                mode = stat.S_IMODE(entry.stat(follow_symlinks=False).st_mode)
                wanted = PROGRAM if mode & stat.S_IXUSR else FILE
                if mode != wanted:
                    with contextlib.suppress(PermissionError):  # of another user, whose cache this is as well
                        os.chmod(entry.path, wanted)  # noqa: PTH101


def make_folder(path: str | os.PathLike[str]) -> None:
    os.mkdir(path)  # noqa: PTH102
    os.chmod(path, FOLDER)  # noqa: PTH101


class Folders:
    """Makes folders below another one, each once and with those above it, so that none is a link."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._made = {""}

    def make(self, path: str) -> None:
        if path not in self._made:
            self.make(path.rpartition("/")[0])
            make_folder(f"{self.root}/{path}")
            self._made.add(path)


LinkMode = Literal["auto", "clone", "hardlink", "copy"]

_FICLONE = 0x40049409  # of linux/fs.h
# Error numbers of file systems that do not clone files, or not between these two.
_CLONE_UNSUPPORTED = {errno.EXDEV, errno.EOPNOTSUPP, errno.ENOTTY, errno.EINVAL, errno.ENOSYS, errno.EPERM}


class Transfer:
    """Makes new files from files of the cache in one mode.

    In mode ``"auto"`` it clones; once the file system refuses that, it makes hard links, and once it refuses these too,
    copies. ``destination`` is what the files are made for, for messages.
    """

    def __init__(self, mode: LinkMode, destination: Path) -> None:
        self._destination = destination
        self._ways = list(_WAYS if mode == "auto" else [way for way in _WAYS if way[0] == mode])

    def __call__(self, source: str, target: str) -> None:
        """Make the new file ``target`` from the file ``source``; content, permissions and time stamps are the same."""
        while True:
            name, make, unsupported = self._ways[0]
            try:
                make(source, target)
            except OSError as error:
                if error.errno not in unsupported:
                    raise
                if len(self._ways) == 1:
                    raise _refusal(name, self._destination) from error
                del self._ways[0]
            else:
                return

    def link(self, text: str, place: str) -> None:
        try:
            os.symlink(text, place)  # noqa: PTH211 - text is faster than Path
        except OSError as error:
            if error.errno not in NO_LINKS:
                raise
            what = f"no symbolic links can be made here, and an environment's folder has some: {error.strerror}"
            raise StorageError("file-unusable", what, "build with --format tar.gz", str(self._destination)) from error


def is_result_of(mode: LinkMode, placed: Path, source: Path) -> bool:
    """Whether ``placed`` can have been made from ``source`` in a mode; True if ``source`` does not exist any more."""
    if mode == "auto":
        return True
    try:
        new, old = placed.lstat(), source.lstat()
    except FileNotFoundError:
        return True
    return ((new.st_dev, new.st_ino) == (old.st_dev, old.st_ino)) == (mode == "hardlink")


def _refusal(name: str, destination: Path) -> StorageError:
    what = {"clone": "files of the cache cannot be cloned", "hardlink": "no hard links to the cache can be made"}[name]
    return StorageError(
        "link-mode-unsupported",
        f"{what} here: the file system does not support it, or the cache is on another one",
        "leave out link_mode, or use --set link_mode=copy",
        str(destination),
    )


def _clone(source: str, target: str) -> None:
    with open(source, "rb") as original, open(target, "xb") as new:  # noqa: PTH123 - text is faster than Path
        try:
            fcntl.ioctl(new.fileno(), _FICLONE, original.fileno())
        except OSError:
            os.unlink(target)  # noqa: PTH108
            raise
    shutil.copystat(source, target)


def _copy(source: str, target: str) -> None:
    shutil.copyfile(source, target)
    shutil.copystat(source, target)


# From the one that costs least and separates most: a name, what makes the file, and the errors that mean "not here".
_WAYS: tuple[tuple[LinkMode, Callable[[str, str], None], set[int]], ...] = (
    ("clone", _clone, _CLONE_UNSUPPORTED),
    ("hardlink", os.link, LINK_UNSUPPORTED),
    ("copy", _copy, set()),
)
