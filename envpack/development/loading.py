"""Loads models in a thread, so that a model which takes long to load holds up nothing else."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

_END_SECONDS = 5.0


class Loader:
    """Loads models one after the other."""

    def __init__(self, load: Callable[[str, float], None]) -> None:
        self._load = load
        self._pending: dict[str, float] = {}
        self._current, self._since = "", 0.0
        self._closed = False
        self._error: Exception | None = None
        self._change = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="loader", daemon=True)
        self._thread.start()

    def put(self, names: Sequence[str], started: float) -> None:
        """Load these models, in this order; one that is being loaded is loaded once more."""
        with self._change:
            for name in names:
                self._pending.setdefault(name, started)
            self._change.notify()

    def discard(self, name: str) -> None:
        """Do not load this model."""
        with self._change:
            self._pending.pop(name, None)

    @property
    def loading(self) -> str:
        """The model that is being loaded, ``""`` for none."""
        return self._current

    def is_idle(self) -> bool:
        """Whether all models are loaded."""
        with self._change:
            return not self._current and not self._pending

    def is_blocked(self, seconds: float) -> bool:
        """Whether a model that has changed since has been loading for longer than this."""
        with self._change:
            return self._current in self._pending and time.monotonic() - self._since > seconds

    def check(self) -> None:
        """Raise what a load has raised."""
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        """Load nothing more. A load that is under way ends with the server."""
        with self._change:
            self._closed = True
            self._pending.clear()
            self._change.notify()

    def join(self) -> None:
        """Wait for the end of the last load, after the server's."""
        self._thread.join(_END_SECONDS)

    def _run(self) -> None:
        while True:
            with self._change:
                self._current = ""
                self._change.wait_for(lambda: self._pending or self._closed)  # no limit: put() and close() end it
                if self._closed:
                    return
                name = self._current = next(iter(self._pending))
                started, self._since = self._pending.pop(name), time.monotonic()
            try:
                self._load(name, started)
            except Exception as error:
                self._error = error
                return
