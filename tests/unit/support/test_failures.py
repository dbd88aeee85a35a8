"""What the system says of files and disks, in the words of an error."""

import errno
import os

from envpack.support.errors import storage_error
from tests.tables import every_row


@every_row(
    ("number", "where", "kind", "message", "hint"),
    [
        (errno.ENOSPC, "/srv/x", "disk-full", "the disk is full; nothing was changed", "free some space, or set"),
        (
            errno.EDQUOT,
            None,
            "disk-full",
            "a disk is full",
            "free some space on the disks of the repository, the cache",
        ),
        (errno.EACCES, "/srv/x", "not-writable", "cannot be read or written: Permission", "change its permissions, or"),
        (errno.EROFS, "/srv/x", "not-writable", "cannot be read or written: Read-only", "mount its file system for"),
    ],
)
def test_what_is_wrong_with_a_file_is_named_with_what_helps(number, where, kind, message, hint):
    error = storage_error(OSError(number, os.strerror(number), where))
    assert (error.kind, error.where) == (kind, where or "")
    assert error.message.startswith(message)
    assert error.hint.startswith(hint)
