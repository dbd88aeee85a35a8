"""Permissions of what envpack makes for others to read: set, never inherited from the umask of the user who builds.

A server runs as another user, so every user can read files and enter folders. Files in the cache are read-only: models
have hard links to them, and no model may change what others have.
"""

from __future__ import annotations

import contextlib
import os
import stat

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
    """Make a folder that every user can enter.

    Raises:
        OSError: it exists, or cannot be made.
    """
    os.mkdir(path)  # noqa: PTH102
    os.chmod(path, FOLDER)  # noqa: PTH101
