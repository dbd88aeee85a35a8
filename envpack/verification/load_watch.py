"""Measures for how long a load has been in a state from which it cannot end."""

from __future__ import annotations

from envpack.server.interface import Server
from envpack.server.log import last_started_stub, stub_reports

_LONGEST_INTERVAL = 0.25  # seconds


class DeadStubTimer:
    """Measures for how long stubs have been dead without being reaped by the server.

    Reaped stubs are forgotten: every stub that completed a configuration ends this way. A long gap between two updates
    counts only in part: if this process could not run, neither could the server.
    """

    def __init__(self, now: float) -> None:
        self._updated = now
        self._seconds: dict[int, float] = {}

    def update(self, dead: frozenset[int], now: float) -> None:
        """Set the process ids of the stubs that are dead at the time ``now``."""
        since = min(now - self._updated, _LONGEST_INTERVAL)
        self._updated = now
        self._seconds = {pid: self._seconds[pid] + since if pid in self._seconds else 0.0 for pid in dead}

    @property
    def seconds(self) -> float:
        """Seconds since the death of the stub that has been dead longest."""
        return max(self._seconds.values(), default=0.0)


class FullTimer:
    """Measures for how long the server cannot have started a thread, although the model is initialized.

    The server then starts threads of its own. If it cannot, the load never ends, and the model is not to blame.
    """

    def __init__(self) -> None:
        self._since = 0.0
        self.seconds = 0.0  # 0 if the last update has found room

    def update(self, server: Server, log: str, now: float) -> None:
        """Look at the server at the time ``now``; ``log`` is what it has written since the load began."""
        is_full = _is_initialized(log) and server.at_process_limit()
        self._since = (self._since or now) if is_full else 0.0
        self.seconds = now - self._since if is_full else 0.0


def _is_initialized(log: str) -> bool:
    """Whether the instance that was started last has initialized its model, by the report of envpack's stub."""
    report = stub_reports(log).get(last_started_stub(log))
    return report is not None and report.initialize_seconds is not None
