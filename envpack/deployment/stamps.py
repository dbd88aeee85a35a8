"""Stamps of files: with the same stamp, a digest or a layer that was computed before is used again."""

from __future__ import annotations

import os

_SETTLED = 2 * 10**9  # nanoseconds after which another change of a file has other time stamps


def stamp_of(status: os.stat_result) -> list[int]:
    """What differs after any change of a file, also after one that sets its modification time back."""
    return [status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_dev, status.st_ino]


def has_settled(status: os.stat_result, now: int) -> bool:
    """Whether a file did not change shortly before a time in nanoseconds, or since, so that its stamp is its own."""
    return now - max(status.st_mtime_ns, status.st_ctime_ns) > _SETTLED
