"""Signals that end the command, at every moment of it.

Without this, Python would show a traceback or end by the signal if Ctrl-C comes while it imports the command or exits.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
from types import FrameType
from typing import Any
from weakref import WeakSet

from envpack.support.interruption import Raised, is_raised_again, noted, raise_for

EXIT_CODE = 130
_is_working = False
_has_exited = False  # the exception of `_exit` was raised
_exiting: WeakSet[Raised] = WeakSet()  # it, until it is dropped


def install() -> None:
    """Handle Ctrl-C from now on, unless the program was started with SIGINT ignored, as in the background."""
    sys.unraisablehook = _unraisable
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return
    signal.signal(signal.SIGINT, _interrupt)
    # The first that is registered runs last: from then on no Python code can handle the signal.
    atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)


def begin_work() -> None:
    """From now on, Ctrl-C raises KeyboardInterrupt."""
    global _is_working  # noqa: PLW0603
    _is_working = True


def end_work() -> None:
    """From now on, Ctrl-C ends the process at once, without a message."""
    global _is_working  # noqa: PLW0603
    _is_working = False
    # Python notes a Ctrl-C that came while `exec` ran text, as the import of a dataclass does, and `python -m envpack`
    # would end by the signal although it handled the exception. Python forgets the note when it runs other text.
    exec("")  # noqa: S102


def exit_on(*numbers: int) -> None:
    """Exit on these signals, unless they are ignored, as under nohup; what was started ends before."""
    for number in numbers:
        if signal.getsignal(number) == signal.SIG_DFL:
            signal.signal(number, _exit)


@noted
def _interrupt(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - the signature of a handler
    if not _is_working:
        os._exit(EXIT_CODE)
    raise_for(number, lambda: _is_working, WeakSet())


@noted
def _exit(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - the signature of a handler
    global _has_exited  # noqa: PLW0603
    if not (_exiting or (_has_exited and not _is_working)):
        _has_exited = True
        raise_for(number, lambda: _is_working, _exiting)


def _unraisable(lost: Any) -> None:
    """Be silent about an exception that is raised again."""
    if not is_raised_again(lost.exc_value):
        sys.__unraisablehook__(lost)
