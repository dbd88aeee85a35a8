"""How the core reports what it is doing, without printing.

The core calls a `Progress`. The command line passes one that draws on the terminal; a program may pass its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class Progress(Protocol):
    """Receives the steps of a long operation, in order. Steps do not nest.

    The receiver measures the elapsed time of a step itself, from `begin` to `end`.
    """

    def begin(self, task: str) -> None:
        """A step starts, for example ``"resolve Python 3.10"``."""

    def detail(self, text: str) -> None:
        """Something worth showing happened within the step."""

    def advance(self, done: int, total: int, unit: str, *, size: int = 0) -> None:
        """Part of the step is done. May be called thousands of times a second, so it must return quickly.

        ``total`` is 0 if it is unknown. ``unit`` is a plural noun; ``"bytes"`` counts bytes, else ``size`` does.
        """

    def end(self, outcome: str) -> None:
        """The step is over; ``outcome`` is a short phrase, for example ``"12 packages"`` or ``"up to date"``."""


class NoProgress:
    """A `Progress` that shows nothing."""

    def begin(self, task: str) -> None:
        pass

    def detail(self, text: str) -> None:
        pass

    def advance(self, done: int, total: int, unit: str, *, size: int = 0) -> None:
        pass

    def end(self, outcome: str) -> None:
        pass


SILENT: Progress = NoProgress()
"""The default of every API function."""


class WithinStep(NoProgress):
    """A `Progress` for work within a step that has begun: its own steps are parts of that one."""

    def __init__(self, outer: Progress) -> None:
        self._outer = outer

    def detail(self, text: str) -> None:
        self._outer.detail(text)

    def advance(self, done: int, total: int, unit: str, *, size: int = 0) -> None:
        self._outer.advance(done, total, unit, size=size)


def count_bytes(progress: Progress, total: int) -> Callable[[int], None]:
    """What reports bytes of a step; it is called with the number of those that were moved since its last call."""
    moved = 0

    def add(size: int) -> None:
        nonlocal moved
        moved += size
        progress.advance(min(moved, total), total, "bytes")

    return add


def format_advance(done: int, total: int, unit: str, *, size: int = 0) -> str:
    """The arguments of `Progress.advance` as text.

    >>> format_advance(120, 480, "files", size=35_200_000)
    '120 of 480 files, 35.2 MB'
    >>> format_advance(1_500_000, 3_000_000, "bytes")
    '1.5 of 3.0 MB'
    """
    if unit == "bytes":
        known_total = f" of {total / 1e6:.1f}" if total else ""
        return f"{done / 1e6:.1f}{known_total} MB"
    known_total = f" of {total}" if total else ""
    known_size = f", {size / 1e6:.1f} MB" if size else ""
    return f"{done}{known_total} {unit}{known_size}"
