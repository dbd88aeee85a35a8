"""How long a model may take."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

_Found = TypeVar("_Found")
MORE_TIME = "--timeout, in pytest --envpack-timeout, allows more time"
_SLICE = 1.0  # seconds after which a wait looks again whether the clock has stood still


class Limit:
    """A limit for each wait for a model, by a clock that stands still while an environment or a stub is made."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._changing = threading.Lock()  # of what follows
        self._stops = 0
        self._stopped_at = 0.0
        self._stopped_for = 0.0

    def __str__(self) -> str:
        return f"more than {self.seconds:g} s"

    def now(self) -> float:
        """The time in seconds, without that in which the clock stood still."""
        with self._changing:
            return (self._stopped_at if self._stops else time.monotonic()) - self._stopped_for

    def end(self) -> float:
        """When a wait that begins now has to end."""
        return self.now() + self.seconds

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        """Stop the clock; any thread, any number of times."""
        with self._changing:
            if not self._stops:
                self._stopped_at = time.monotonic()
            self._stops += 1
        try:
            yield
        finally:
            with self._changing:
                self._stops -= 1
                if not self._stops:
                    self._stopped_for += time.monotonic() - self._stopped_at

    def wait(self, until: float, attempt: Callable[[float], _Found]) -> _Found:
        """Wait until a time, by several attempts.

        Returns the first true result of an attempt; the last one, which is false, if the time is over.
        """
        while True:
            left = until - self.now()
            found = attempt(max(0.0, min(left, _SLICE)))
            if found or left <= 0:
                return found
