"""Waits for events. Only a broken feature reaches the limit, so the limit is generous."""

import time

_PAUSE = 0.02


def soon(condition, *, seconds=60):
    """The first true value of the condition, or its last value after so many seconds of looking.

    Attempts are counted instead of time, so that time in which the machine stood still does not count.
    """
    for _ in range(int(seconds / _PAUSE)):
        if value := condition():
            return value
        time.sleep(_PAUSE)
    return condition()
