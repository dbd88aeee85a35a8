"""Writes files that the user named: regular ones are replaced in one step, all others are written to."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import sys
from pathlib import Path

from envpack.support.replacement import write_text


def write_output(file: Path, text: str) -> None:
    """Write ``text`` in UTF-8 to a file that the user named.

    A regular file is replaced in one step and keeps its owner and attributes; a link to one is followed. A device, a
    pipe, or a stream of this process such as ``/dev/stdout`` is written to. Missing folders are created.

    Args:
        file: any path.
        text: the content.

    Raises:
        OSError: it is a folder, nobody reads the pipe, the disk is full, or the path is not writable.
    """
    try:
        status = file.stat()
    except FileNotFoundError:
        target = Path(os.path.realpath(file))  # of a link that leads nowhere yet
        target.parent.mkdir(parents=True, exist_ok=True)
        write_text(target, text)
        return
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(file))
    if stat.S_ISREG(status.st_mode) and not _is_open_stream(status):
        write_text(Path(os.path.realpath(file)), text)
    else:
        _write_to(file, text)


def _is_open_stream(status: os.stat_result) -> bool:
    """Whether a file is what standard output or the log goes to, as with ``--report /dev/stdout > page.html``."""
    for number in (1, 2):
        with contextlib.suppress(OSError):
            if os.path.samestat(os.fstat(number), status):
                return True
    return False


def _write_to(file: Path, text: str) -> None:
    sys.stdout.flush()
    # Without waiting for a reader, which may never come.
    handle = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK | os.O_NOCTTY)
    with os.fdopen(handle, "w", encoding="utf-8") as stream:
        fcntl.fcntl(handle, fcntl.F_SETFL, fcntl.fcntl(handle, fcntl.F_GETFL) & ~os.O_NONBLOCK)
        stream.write(text)
