"""Starts programs and waits for them. Only servers, which outlive a call, are started elsewhere."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import Context, ContextVar, copy_context
from dataclasses import dataclass
from pathlib import Path

# In this order: a program such as Ninja ends its compilers on SIGTERM, but cannot on SIGKILL.
_SET_DEATH_SIGNAL = 1  # of prctl()
_STOP_SIGNALS = (signal.SIGTERM, signal.SIGKILL)
_GRACE_PERIOD = 10.0  # seconds after SIGTERM in which a program can end the processes that it has started


@dataclass(frozen=True)
class CompletedProcess:
    """A program that has ended.

    Attributes:
        returncode: exit status; a negative number is the signal that ended it.
        stdout: standard output, decoded as UTF-8 with replacement characters.
        stderr: standard error, decoded likewise.
    """

    returncode: int
    stdout: str
    stderr: str

    def last_lines(self, count: int = 12) -> str:
        """The last lines of standard error, or of standard output if that is empty, for an error message."""
        lines = (self.stderr.strip() or self.stdout.strip()).splitlines()
        return "\n".join(lines[-count:])


_PROGRAMS: ContextVar[RunningPrograms | None] = ContextVar("programs", default=None)


class RunningPrograms:
    """The programs that `run` has started within one `stoppable` block or one `context`, in any thread.

    They belong to the block around it as well, so they end with that, too.
    """

    def __init__(self) -> None:
        self._outer = _PROGRAMS.get()
        self._change = threading.Condition()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._stopped = False

    def stop(self) -> None:
        """End all programs. Calls of `run` that wait for one, and all later calls, raise KeyboardInterrupt."""
        with self._change:
            self._stopped = True
            for number in _STOP_SIGNALS:
                for child in self._running:
                    _signal_group(child, number)
                self._change.wait_for(lambda: not self._running, _GRACE_PERIOD)

    def raise_if_stopped(self) -> None:
        """Raise KeyboardInterrupt after `stop`."""
        if self._stopped:
            raise KeyboardInterrupt
        if self._outer:
            self._outer.raise_if_stopped()

    def context(self) -> Context:
        """A copy of the thread's context, for another thread, whose programs are among these."""
        context = copy_context()
        context.run(_PROGRAMS.set, self)
        return context

    @contextlib.contextmanager
    def tracking(self, child: subprocess.Popen[bytes]) -> Iterator[None]:
        """Let `stop` end this program during the block."""
        with self._change:
            self.raise_if_stopped()
            self._running.add(child)
        try:
            with self._outer.tracking(child) if self._outer else contextlib.nullcontext():
                yield
        finally:
            with self._change:
                self._running.discard(child)
                self._change.notify_all()
        self.raise_if_stopped()


@contextlib.contextmanager
def stoppable() -> Iterator[RunningPrograms]:
    """Allow another thread to stop the programs that `run` starts within the block.

    A thread is within the block if it runs in a copy of its context (`contextvars.copy_context`).
    """
    programs = RunningPrograms()
    token = _PROGRAMS.set(programs)
    try:
        yield programs
    finally:
        _PROGRAMS.reset(token)


def raise_if_stopped() -> None:
    """Raise KeyboardInterrupt if the surrounding `stoppable` block is stopped; for loops that wait without `run`."""
    programs = _PROGRAMS.get()
    if programs:
        programs.raise_if_stopped()


def run(
    command: Sequence[str | Path],  # program and arguments; never passed through a shell
    *,
    # The complete environment of the program. There is no default, so that no variable is inherited by accident.
    env: Mapping[str, str],
    cwd: Path | None = None,  # working folder, by default the caller's
    timeout: float | None = None,  # seconds
    text: str = "",  # what the program reads from its standard input
) -> CompletedProcess:
    """Run a program to its end and capture its output.

    If the caller is interrupted, the program and all processes that it has started are ended before this returns.
    """
    programs = _PROGRAMS.get()
    with subprocess.Popen(
        [str(part) for part in command],
        env=dict(env),
        cwd=cwd,
        stdin=subprocess.PIPE if text else subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        process_group=0,  # so that signals reach all its processes
    ) as child:
        try:
            with programs.tracking(child) if programs else contextlib.nullcontext():
                stdout, stderr = child.communicate(text.encode() or None, timeout)
        except BaseException:
            _end(child)
            raise
    return CompletedProcess(child.returncode, stdout.decode("utf-8", "replace"), stderr.decode("utf-8", "replace"))


def follow(command: Sequence[str | Path], *, env: Mapping[str, str], on_line: Callable[[str], None]) -> int:
    """Run a program to its end, and pass on each line of its output and errors as soon as it is written.

    Returns the exit status; a negative number is the signal that ended it.
    """
    programs = _PROGRAMS.get()
    with subprocess.Popen(
        [str(part) for part in command],
        env=dict(env),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        process_group=0,
    ) as child:
        try:
            with programs.tracking(child) if programs else contextlib.nullcontext():
                for line in child.stdout or ():
                    on_line(line.decode("utf-8", "replace").rstrip("\n"))
                return child.wait()
        except BaseException:
            _end(child)
            raise


def run_in_foreground(command: Sequence[str | Path], *, env: Mapping[str, str], output: int | None = None) -> int:
    """Run a program that uses the caller's terminal, and return its exit status.

    Ctrl-C reaches the program too. It is given time to end before KeyboardInterrupt is raised here.
    """
    with subprocess.Popen([str(part) for part in command], env=dict(env), stdout=output) as child:
        try:
            return child.wait()
        except BaseException as error:
            if not isinstance(error, KeyboardInterrupt):
                child.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(_GRACE_PERIOD)
            child.kill()
            raise


def end_with(parent: int) -> None:
    """Have the kernel send this process SIGTERM when its parent ends; exit if that has happened already."""
    ctypes.CDLL(None).prctl(_SET_DEATH_SIGNAL, signal.SIGTERM)
    if os.getppid() != parent:
        sys.exit(128 + signal.SIGTERM)


def _end(child: subprocess.Popen[bytes]) -> None:
    for number in _STOP_SIGNALS:
        _signal_group(child, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.communicate(timeout=_GRACE_PERIOD)  # until every process of the group has closed its output
            return


def _signal_group(child: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, number)
