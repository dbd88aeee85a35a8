"""Standard streams that may be closed, full or gone: no traceback is shown, and no work is lost for a remark."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Iterator
from typing import Any, TextIO

from envpack.support.errors import StorageError

_NAMES = ("stdin", "stdout", "stderr")


def prepare_streams() -> None:
    """Open closed standard streams anew: else the next file that is opened gets the number of one.

    A locale without some characters must not end a command: its streams get ``?`` in their place. What click and
    rich write passes through `Results` and `Remarks`, too.
    """
    for number, name in enumerate(_NAMES):
        try:
            os.fstat(number)
        except OSError:
            handle = _nowhere()  # gets the lowest number that is free
            os.set_inheritable(handle, True)
            setattr(sys, name, os.fdopen(handle, "r" if number == 0 else "w", encoding="utf-8", closefd=False))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    sys.stdout, sys.stderr = Results(sys.stdout), Remarks(sys.stderr)


def _nowhere() -> int:
    try:
        return os.open(os.devnull, os.O_RDWR)
    except OSError:  # a root file system without devices
        return os.memfd_create("null")


class _Stream:
    """A stream whose writing is another."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class Remarks(_Stream):
    """Standard error, which may stop to be writable at any moment; what cannot be written is lost."""

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Write what is kept, if that is possible; else forget it."""
        try:
            self._stream.flush()
        except OSError:
            _discard(self._stream)


class Results(_Stream):
    """Standard output, whose failure is an error for the user; of a closed pipe it is a BrokenPipeError."""

    def write(self, text: str) -> int:
        if text == "":  # so click tries what a stream takes, and an error of that would be lost
            return 0
        with self._failing():
            return self._stream.write(text)

    def flush(self) -> None:
        with self._failing():
            self._stream.flush()

    @contextlib.contextmanager
    def _failing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            _discard(self._stream)
            if isinstance(error, BrokenPipeError):
                raise
            what = f"cannot be written: {error.strerror}"
            fix = "write it to another file or program"
            raise StorageError("output-failed", what, fix, "standard output") from error


def echo(text: str) -> None:
    """Write a result that is text to standard output, as it is."""
    sys.stdout.write(text)
    sys.stdout.flush()


def _discard(stream: TextIO) -> None:
    """Let a stream lead nowhere from now on, also for what it still keeps."""
    with contextlib.suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)
