"""Exceptions that signals raise in the main thread, raised again if Python or a library drops them.

Python drops what is raised while a finalizer or the callback of a weak reference runs, and for files even without a
word. An exception that was dropped ceases to exist; that is how it is noticed. Python also handles no signal while the
main thread waits for a lock, if the signal came just before; so another thread sends it again.
"""

from __future__ import annotations

import _thread
import contextlib
import os
import select
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import NoReturn
from weakref import WeakSet

_MOMENT = 0.05  # seconds in which the main thread handles a signal, or leaves what drops an exception
_MOST_BYTES = 4096
_RAISED = "envpack_raised"  # attribute of exceptions
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
Handler = Callable[[int, FrameType | None], None]
_handlers: WeakSet[Handler] = WeakSet()  # those of `noted`
_arrived = -1  # descriptor that has one byte for each signal that no handler has noted
_wakeup = -1  # descriptor to which Python writes these bytes


class Raised:
    """A part of an exception, and of nothing else: if the exception is dropped, the signal is sent again."""

    def __init__(self, number: int, is_wanted: Callable[[], bool]) -> None:
        self.is_wanted = is_wanted
        self._thread, self._number = _thread.get_ident(), number

    def __del__(self) -> None:
        if self.is_wanted():
            _thread.start_new_thread(_repeat, (self._thread, self._number))


def raise_for(number: int, is_wanted: Callable[[], bool], raised: WeakSet[Raised]) -> NoReturn:
    """Raise the exception for a signal, `KeyboardInterrupt` or `SystemExit` with 128 plus the number; for handlers.

    This thread gets the signal again if the exception is dropped while it is wanted. ``raised`` has an element until
    then, or until it is caught.
    """
    # Not of a class of its own: Python ends by the signal only after a KeyboardInterrupt of exactly this class.
    error = KeyboardInterrupt() if number == signal.SIGINT else SystemExit(128 + number)
    error.__dict__[_RAISED] = Raised(number, is_wanted)
    raised.add(error.__dict__[_RAISED])
    try:
        raise error
    finally:
        del error  # else it and its traceback refer to each other, and it exists until the garbage is collected


def is_raised_again(error: BaseException | None) -> bool:
    """Whether an exception is one of `raise_for`."""
    return hasattr(error, _RAISED)


def caught(error: BaseException) -> None:
    """Note that an exception has arrived; for code that goes on after it."""
    if is_raised_again(error):
        error.__dict__[_RAISED].is_wanted = bool


def _repeat(thread: int, number: int) -> None:
    select.select([], [], [], _MOMENT)
    signal.pthread_kill(thread, number)


def repeat_unhandled() -> None:
    """From now on, also notice signals that come just before the main thread waits. Opens files."""
    global _arrived, _wakeup
    with contextlib.suppress(OSError, RuntimeError):  # no further file or thread: what needs one itself reports it
        _arrived, _wakeup = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(_wakeup, warn_on_full_buffer=False)
        _thread.start_new_thread(_repeat_unhandled, (_arrived, _thread.get_ident()))


def noted(handler: Handler) -> Handler:
    """A handler whose calls `repeat_unhandled` knows of; signals for others are not repeated."""

    def note(number: int, frame: FrameType | None) -> None:
        if _arrived != -1:
            with contextlib.suppress(BlockingIOError):
                os.read(_arrived, _MOST_BYTES)
        handler(number, frame)

    _handlers.add(note)
    return note


def _repeat_unhandled(arrived: int, main: int) -> None:
    """Send a signal to the main thread again until it has called its handler."""
    while True:
        select.select([arrived], [], [])
        select.select([], [], [], _MOMENT)
        with contextlib.suppress(BlockingIOError):  # handled meanwhile
            for number in set(os.read(arrived, _MOST_BYTES)):
                if signal.getsignal(number) in _handlers:
                    signal.pthread_kill(main, number)


@contextlib.contextmanager
def once_interruptible() -> Iterator[None]:
    """Within the block, the first SIGINT, SIGTERM or SIGHUP raises an exception; later signals are ignored.

    SIGINT raises `KeyboardInterrupt`, even if the program was started with SIGINT ignored. The other signals raise
    `SystemExit` with 128 plus the signal's number, unless they are ignored, as under nohup. Outside the main thread the
    block changes nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    raised: WeakSet[Raised] = WeakSet()
    is_inside, waiting = False, list[int]()  # signals that came while handlers were changed

    @noted
    def interrupt(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - the signature of a handler
        if not is_inside:
            waiting.append(number)
        elif not raised:
            raise_for(number, lambda: is_inside, raised)

    try:
        with contextlib.ExitStack() as restored:  # which also goes on if a restored handler raises
            watched = signal.set_wakeup_fd(_wakeup, warn_on_full_buffer=False)  # others do not know this handler
            restored.callback(signal.set_wakeup_fd, watched, warn_on_full_buffer=False)
            for number in _SIGNALS:
                before = signal.getsignal(number)
                if number == signal.SIGINT or before != signal.SIG_IGN:
                    restored.callback(signal.signal, number, before)
                    signal.signal(number, interrupt)
            is_inside = True
            _raise_first(waiting)
            try:
                yield
            finally:
                is_inside = False
    finally:
        if not raised:
            _raise_first(waiting)


def _raise_first(numbers: list[int]) -> None:
    """Let the handler of the first signal that was kept run."""
    for number in numbers[:1]:
        numbers.clear()
        signal.raise_signal(number)
