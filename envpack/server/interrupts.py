"""Converts termination signals to exceptions, so that a started server is always stopped."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Within the block, the first SIGINT, SIGTERM or SIGHUP raises an exception; later signals are ignored.

    SIGINT raises `KeyboardInterrupt`, even if the program was started with SIGINT ignored. The other signals raise
    `SystemExit` with 128 plus the signal's number. Outside the main thread the block changes nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    seen = False

    def interrupt(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - the signature of a handler
        nonlocal seen
        if seen:
            return
        seen = True
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        raise SystemExit(128 + number)

    watched = signal.set_wakeup_fd(-1)  # what watches for unhandled signals does not know this handler
    before = {number: signal.signal(number, interrupt) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(watched, warn_on_full_buffer=False)
