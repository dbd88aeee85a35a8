"""What the command imports first: until everything else is imported, Ctrl-C ends it without a traceback."""

from __future__ import annotations

import os
import signal
from types import FrameType

_INTERRUPTED = 130


def main() -> None:
    """Run the command line and exit with its code."""
    waits = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # not under nohup or in the background
    if waits:
        signal.signal(signal.SIGINT, _end)
    from envpack.cli.main import main as run

    if waits:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    run()


def _end(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - the signature of a handler
    os._exit(_INTERRUPTED)
