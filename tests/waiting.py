"""Waits for events. Only a broken feature reaches the limit, so the limit is generous."""

import os
import time

_PAUSE = 0.02
_SETTLED = 2.0  # seconds, as in envpack/environment/prefix_files.py


def soon(condition, *, seconds=60):
    """The first true value of the condition, or its last value after so many seconds of looking.

    Attempts are counted instead of time, so that time in which the machine stood still does not count.
    """
    for _ in range(int(seconds / _PAUSE)):
        if value := condition():
            return value
        time.sleep(_PAUSE)
    return condition()


def settled(folder):
    """Whether every file of a folder is so old that a change would alter its time stamps."""
    stamps = [os.lstat(os.path.join(root, name)).st_ctime for root, _, names in os.walk(folder) for name in names]
    return soon(lambda: time.time() - max(stamps) > _SETTLED)
