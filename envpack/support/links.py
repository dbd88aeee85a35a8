"""Hard links where the file system allows them, else copies."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil

# What file systems say that cannot link, or not across their border.
NO_LINK = {errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP}


def link_or_copy(source: str, target: str) -> None:
    """Make ``target`` the file ``source``, in place of what is there.

    Raises:
        OSError: it cannot be written.

    """
    with contextlib.suppress(FileNotFoundError):
        os.unlink(target)  # noqa: PTH108 - text is faster, and there may be thousands
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno not in NO_LINK:
            raise
        shutil.copy2(source, target, follow_symlinks=False)
