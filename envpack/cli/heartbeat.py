"""Repeats, where there is no terminal, the line of a step that writes nothing for a while."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

FIRST = 1.5  # seconds until the first line of a command
SILENCE = 9.0  # seconds without a line


class Heartbeat:
    """Calls a function, in a thread of its own, whenever nothing was written for a while, until it is stopped."""

    def __init__(self, write: Callable[[], None], *, first: bool) -> None:
        """Start."""
        self._write = write
        self._stopped = threading.Event()
        self._due = time.monotonic() + (FIRST if first else SILENCE)
        self._thread = threading.Thread(target=self._repeat, name="heartbeat", daemon=True)
        self._thread.start()

    def put_off(self) -> None:
        """A line was written."""
        self._due = time.monotonic() + SILENCE

    def stop(self) -> None:
        """Write nothing from now on."""
        self._stopped.set()
        self._thread.join()

    def _repeat(self) -> None:
        while not self._stopped.wait(max(0.0, self._due - time.monotonic())):
            if time.monotonic() >= self._due:
                self.put_off()
                self._write()
