"""Exceptions that signals raise in the main thread, raised again if Python or a library drops them.

Python drops what is raised while a finalizer or the callback of a weak reference runs, and for files even without a
word. An exception that was dropped ceases to exist; that is how it is noticed.
"""

from __future__ import annotations

import _thread
import contextlib
import select
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import NoReturn
from weakref import WeakSet

MOMENT = 0.05  # seconds in which the main thread handles a signal, or leaves what drops an exception
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class _Raised:
    """What both exceptions have in common: who drops one gets the signal again, unless that is no longer wanted."""

    number: int
    is_wanted: Callable[[], bool]
    thread: int

    def __del__(self) -> None:
        if self.is_wanted():
            _thread.start_new_thread(_repeat, (self.thread, self.number))


class Interrupted(_Raised, KeyboardInterrupt):
    """SIGINT has arrived."""


class Ended(_Raised, SystemExit):
    """Another signal that ends the process has arrived; the exit code is 128 plus its number."""


def raise_for(number: int, is_wanted: Callable[[], bool], raised: WeakSet[BaseException]) -> NoReturn:
    """Raise the exception for a signal; for handlers.

    Args:
        number: the signal, which this thread gets again if the exception is dropped.
        is_wanted: whether that is still so.
        raised: gets the exception, which leaves it when it was caught or dropped.
    """
    error = Interrupted() if number == signal.SIGINT else Ended(128 + number)
    error.number, error.is_wanted, error.thread = number, is_wanted, _thread.get_ident()
    raised.add(error)
    try:
        raise error
    finally:
        del error  # else it and its traceback refer to each other, and it exists until the garbage is collected


def caught(error: BaseException) -> None:
    """Note that an exception has arrived; for code that goes on after it."""
    if isinstance(error, _Raised):
        error.is_wanted = bool


def _repeat(thread: int, number: int) -> None:
    select.select([], [], [], MOMENT)
    signal.pthread_kill(thread, number)


@contextlib.contextmanager
def once_interruptible() -> Iterator[None]:
    """Within the block, the first SIGINT, SIGTERM or SIGHUP raises an exception; later signals are ignored.

    SIGINT raises `KeyboardInterrupt`, even if the program was started with SIGINT ignored. The other signals raise
    `SystemExit` with 128 plus the signal's number. Outside the main thread the block changes nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    raised: WeakSet[BaseException] = WeakSet()
    is_inside = True

    def interrupt(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - the signature of a handler
        if not raised:
            raise_for(number, lambda: is_inside, raised)

    watched = signal.set_wakeup_fd(-1)  # what watches for unhandled signals does not know this handler
    before = {number: signal.signal(number, interrupt) for number in _SIGNALS}
    try:
        yield
    finally:
        is_inside = False
        for number, handler in before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(watched, warn_on_full_buffer=False)
