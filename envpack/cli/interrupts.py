"""Signals that end the command, at every moment of it.

Without this, Python would show a traceback or end by the signal if Ctrl-C comes while it imports the command or exits,
and would not notice a signal that comes just before it waits for a lock.
"""

from __future__ import annotations

import _thread
import atexit
import contextlib
import os
import select
import signal
import socket
import sys
from types import FrameType
from typing import Any
from weakref import WeakSet

from envpack.support.interruption import MOMENT, Ended, Interrupted, raise_for

EXIT_CODE = 130
_MOST_BYTES = 4096
_is_working = False
_has_exited = False  # the exception of `_exit` was raised
_exiting: WeakSet[BaseException] = WeakSet()  # it, until it is dropped
_arrived: socket.socket | None = None  # has one byte for each signal that was not handled


def install() -> None:
    """Handle Ctrl-C from now on, unless the program was started with SIGINT ignored, as in the background."""
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return
    signal.signal(signal.SIGINT, _interrupt)
    sys.unraisablehook = _unraisable
    # The first that is registered runs last: from then on no Python code can handle the signal.
    atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)


def repeat_unhandled() -> None:
    """From now on, also notice signals that come just before the main thread waits. Opens files."""
    global _arrived
    _arrived, written = socket.socketpair()
    _arrived.setblocking(False)
    written.setblocking(False)
    signal.set_wakeup_fd(written.detach(), warn_on_full_buffer=False)
    _thread.start_new_thread(_repeat, (_arrived, _thread.get_ident()))


def begin_work() -> None:
    """From now on, Ctrl-C raises KeyboardInterrupt."""
    global _is_working  # noqa: PLW0603
    _is_working = True


def end_work() -> None:
    """From now on, Ctrl-C ends the process at once, without a message."""
    global _is_working  # noqa: PLW0603
    _is_working = False


def exit_on(*numbers: int) -> None:
    """Exit on these signals, unless they are ignored, as under nohup; what was started ends before."""
    for number in numbers:
        if signal.getsignal(number) == signal.SIG_DFL:
            signal.signal(number, _exit)


def _interrupt(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - the signature of a handler
    _forget_arrived()
    if not _is_working:
        os._exit(EXIT_CODE)
    raise_for(number, lambda: _is_working, WeakSet())


def _exit(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - the signature of a handler
    global _has_exited  # noqa: PLW0603
    _forget_arrived()
    if not (_exiting or (_has_exited and not _is_working)):
        _has_exited = True
        raise_for(number, lambda: _is_working, _exiting)


def _forget_arrived() -> None:
    if _arrived is not None:
        with contextlib.suppress(BlockingIOError):
            _arrived.recv(_MOST_BYTES)


def _repeat(arrived: socket.socket, main: int) -> None:
    """Send a signal to the main thread again until it has called its handler."""
    while True:
        select.select([arrived], [], [])
        select.select([], [], [], MOMENT)
        with contextlib.suppress(BlockingIOError):  # handled meanwhile
            for number in set(arrived.recv(_MOST_BYTES)):
                if signal.getsignal(number) in (_interrupt, _exit):
                    signal.pthread_kill(main, number)


def _unraisable(lost: Any) -> None:
    """Be silent about an exception that is raised again."""
    if not issubclass(lost.exc_type, Interrupted | Ended):
        sys.__unraisablehook__(lost)
