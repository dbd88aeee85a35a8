"""Turns the signals that end a program into exceptions, so that what was started is always stopped."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Within the block the first SIGINT, SIGTERM or SIGHUP raises, later ones are ignored: the clean-up goes on.

    SIGINT raises `KeyboardInterrupt`, also in a program that was started with it ignored; the others raise
    `SystemExit` with 128 plus the signal's number. Outside of the main thread nothing is changed.
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

    before = {number: signal.signal(number, interrupt) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
