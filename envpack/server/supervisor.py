"""Starts the program that watches a server, gives it orders, and reads its reports; see `supervisor_child`."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from envpack.server.supervisor_child import DETACH, END, KILL, TERMINATE
from envpack.support.errors import ServerError
from envpack.support.text import one_line, printable

_PACKAGE = Path(__file__).parents[1]
# The packages get no content: what their own files import takes longer than the rest of the start.
_PROGRAM = """\
import sys, types
for name, folder in zip(("envpack", "envpack.server"), sys.argv[4:]):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [folder]
from envpack.server.supervisor_child import main
main()
"""
_END_SECONDS = 30.0  # longer than the supervisor itself waits


class _Reports:
    """What a supervisor has reported. A thread reads it, so that any thread can ask and wait for it."""

    def __init__(self, descriptor: int) -> None:
        self._values: dict[str, object] = {}
        self.are_over = False  # whether nothing more will be reported
        self._news = threading.Condition()
        self._thread = threading.Thread(target=self._read, args=(descriptor,), name="server reports", daemon=True)
        self._thread.start()

    def get(self, name: str) -> object:
        """What was reported under this name, None for nothing so far."""
        return self._values.get(name)

    def wait(self, seconds: float | None, *names: str) -> None:
        """Wait until something is reported under one of these names, or nothing more will be; None for any time."""
        with self._news:
            self._news.wait_for(lambda: self.are_over or not self._values.keys().isdisjoint(names), seconds)

    def join(self, seconds: float) -> None:
        self._thread.join(seconds)

    def _read(self, descriptor: int) -> None:
        with os.fdopen(descriptor, "rb") as reports:
            for line in reports:
                if line.endswith(b"\n"):  # else the supervisor was killed while it wrote
                    with self._news:
                        self._values.update(json.loads(line))
                        self._news.notify_all()
        with self._news:
            self.are_over = True
            self._news.notify_all()


class Supervisor:
    """A server that ends when this process ends, or this object is not used any more."""

    def __init__(self, home: Path, log: BinaryIO) -> None:
        orders, results = os.pipe(), os.pipe()
        self._orders = orders[1]
        self._close_orders = weakref.finalize(self, os.close, self._orders)
        self._reports = _Reports(results[0])
        theirs = orders[0], results[1]
        packages = str(_PACKAGE), str(_PACKAGE / "server")
        try:
            self._program = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _PROGRAM, str(home), *map(str, theirs), *packages],
                cwd=home,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                pass_fds=theirs,
            )
        finally:
            for descriptor in theirs:
                os.close(descriptor)

    @property
    def pid(self) -> int:
        return self._program.pid

    def start(self, command: Sequence[str], environment: Mapping[str, str], prefix: str) -> int:
        settings = {
            "command": list(command),
            "environment": dict(environment),
            "prefix": prefix,
            "parent": os.getpid(),
        }
        try:
            self._order(f"{json.dumps(settings)}\n")
            self._reports.wait(None, "pid", "error")
            return self._started(command[0])
        except BaseException:
            self._close_orders()
            self._wait_until_over()
            raise

    def _started(self, program: str) -> int:
        error, pid = self._reports.get("error"), self._reports.get("pid")
        if isinstance(error, int):
            raise OSError(error, os.strerror(error), program)
        if not isinstance(pid, int):
            fix = "run the command again; if it happens again, check the limits of processes and memory"
            raise ServerError("server-failed", "the program that watches the server ended at its start", fix)
        return pid

    def exit_code(self) -> int | None:
        """How the server ended, as in `subprocess.Popen.returncode`; None while it runs."""
        over = self._reports.are_over  # first, because the last report can arrive now
        code = self._reports.get("exit")
        if isinstance(code, int):
            return code
        return -signal.SIGKILL if over else None  # the kernel kills a server whose supervisor was killed

    def wait(self, seconds: float) -> bool:
        self._reports.wait(seconds, "exit")
        return self.exit_code() is not None

    def terminate(self) -> None:
        self._order(TERMINATE)

    def kill(self) -> None:
        """Kill the server's process group."""
        self._order(KILL)

    def detach(self) -> None:
        self._order(DETACH)

    def end(self) -> tuple[str, ...] | None:
        """Kill all that the server started, and remove what it made; returns leftovers, None from a killed program."""
        self._order(END)
        self._wait_until_over()
        left = self._reports.get("left")
        return tuple(printable(one_line(str(phrase))) for phrase in left) if isinstance(left, list) else None

    def _wait_until_over(self) -> None:
        self._reports.wait(_END_SECONDS)
        if not self._reports.are_over:
            self._program.kill()
        self._program.wait()  # no limit: it has reported its end, or was killed
        self._close_orders()
        self._reports.join(_END_SECONDS)

    def _order(self, order: str) -> None:
        if self._close_orders.alive:
            with contextlib.suppress(BrokenPipeError):  # it has ended, which the end of the reports says, too
                os.write(self._orders, order.encode())
