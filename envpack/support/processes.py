"""The one place that starts programs and waits for them (servers, which live on, have their own)."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path

# Ninja, for one, ends its compilers when it is told to end, but cannot when it is killed.
_ENDING = (signal.SIGTERM, signal.SIGKILL)
_GRACE = 10.0  # seconds in which a program that is told to end can end what it has started itself


@dataclass(frozen=True)
class CompletedProcess:
    """A program that has ended.

    Attributes:
        returncode: exit status; negative is the number of the signal that ended it.
        stdout: what it wrote to standard output, decoded as UTF-8 with replacement characters.
        stderr: the same for standard error.
    """

    returncode: int
    stdout: str
    stderr: str

    def last_lines(self, count: int = 12) -> str:
        """The last lines of what it said (standard error first, else output), for an error message."""
        lines = (self.stderr.strip() or self.stdout.strip()).splitlines()
        return "\n".join(lines[-count:])


class Programs:
    """The programs that `run` has going within one `stoppable` block, in whichever thread."""

    def __init__(self) -> None:
        self._change = threading.Condition()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._stopped = False

    def stop(self) -> None:
        """End them all. Each call of `run` that waits for one, or is made later, raises KeyboardInterrupt."""
        with self._change:
            self._stopped = True
            for number in _ENDING:
                for child in self._running:
                    _signal_group(child, number)
                self._change.wait_for(lambda: not self._running, _GRACE)

    def raise_if_stopped(self) -> None:
        if self._stopped:
            raise KeyboardInterrupt

    @contextlib.contextmanager
    def including(self, child: subprocess.Popen[bytes]) -> Iterator[None]:
        with self._change:
            self.raise_if_stopped()
            self._running.add(child)
        try:
            yield
        finally:
            with self._change:
                self._running.discard(child)
                self._change.notify_all()
        self.raise_if_stopped()


_PROGRAMS: ContextVar[Programs | None] = ContextVar("programs", default=None)


@contextlib.contextmanager
def stoppable() -> Iterator[Programs]:
    """Let what `run` does within the block be stopped from another thread.

    Threads are within the block if they run in a copy of its context (`contextvars.copy_context`).
    """
    programs = Programs()
    token = _PROGRAMS.set(programs)
    try:
        yield programs
    finally:
        _PROGRAMS.reset(token)


def raise_if_stopped() -> None:
    """For waiting that is not for a program: raise KeyboardInterrupt if the `stoppable` block around it is stopped."""
    programs = _PROGRAMS.get()
    if programs:
        programs.raise_if_stopped()


def run(
    command: Sequence[str | Path],
    *,
    env: Mapping[str, str],
    cwd: Path | None = None,
    timeout: float | None = None,
) -> CompletedProcess:
    """Run a program to its end with exactly the environment given, and capture what it writes.

    When the caller is interrupted, the program and all that it has started end first, and nobody writes any more.

    Args:
        command: program and arguments; never passed through a shell.
        env: the whole environment of the program. There is no default, so nothing of the caller's leaks in unseen.
        cwd: working directory, the caller's by default.
        timeout: seconds.

    Raises:
        FileNotFoundError: the program does not exist.
        subprocess.TimeoutExpired: it ran longer than ``timeout`` seconds and was ended.
    """
    programs = _PROGRAMS.get()
    with subprocess.Popen(
        [str(part) for part in command],
        env=dict(env),
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        process_group=0,  # so that all of it can be told to end
    ) as child:
        try:
            with programs.including(child) if programs else contextlib.nullcontext():
                stdout, stderr = child.communicate(timeout=timeout)
        except BaseException:
            _end(child)
            raise
    return CompletedProcess(child.returncode, stdout.decode("utf-8", "replace"), stderr.decode("utf-8", "replace"))


def _end(child: subprocess.Popen[bytes]) -> None:
    for number in _ENDING:
        _signal_group(child, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.communicate(timeout=_GRACE)  # to the end of the output, which all of the group have open
            return


def _signal_group(child: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, number)
