"""Starts the program that watches a server, gives it orders, and reads its reports; see `supervisor_child`."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
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


class Supervisor:
    """A server that ends with this process, whatever ends this process.

    The server ends as well when this object is no longer used.

    Args:
        home: the server's folder, which is also the working folder of both.
        log: receives the server's output.
    """

    def __init__(self, home: Path, log: BinaryIO) -> None:
        self._reports: dict[str, object] = {}
        self._unread = b""
        self._over = False
        orders, results = os.pipe(), os.pipe()
        self._orders, self._results = orders[1], results[0]
        self._close_orders = weakref.finalize(self, os.close, self._orders)
        self._close_results = weakref.finalize(self, os.close, self._results)
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
        """Process id of the supervisor."""
        return self._program.pid

    def start(self, command: Sequence[str], environment: Mapping[str, str], prefix: str) -> int:
        """Start the server; returns its process id.

        Args:
            command: program and arguments.
            environment: all its environment variables.
            prefix: prefix of the names of its shared-memory regions, unique to it.

        Raises:
            OSError: it cannot be started.
        """
        settings = {
            "command": list(command),
            "environment": dict(environment),
            "prefix": prefix,
            "parent": os.getpid(),
        }
        try:
            self._order(f"{json.dumps(settings)}\n")
            while not self._over and not {"pid", "error"} & self._reports.keys():
                self._read(_END_SECONDS)
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
            raise ServerError(
                "the program that watches the server ended at its start",
                kind="server-failed",
                hint="run the command again; if it happens again, check the limits of processes and memory",
            )
        return pid

    def exit_code(self) -> int | None:
        """How the server ended, as in `subprocess.Popen.returncode`; None while it runs."""
        self._read(0)
        code = self._reports.get("exit")
        if isinstance(code, int):
            return code
        return -signal.SIGKILL if self._over else None  # the kernel kills a server whose supervisor was killed

    def wait(self, seconds: float) -> bool:
        """Wait for the end of the server; returns whether it has ended."""
        until = time.monotonic() + seconds
        while self.exit_code() is None and (rest := until - time.monotonic()) > 0:
            self._read(rest)
        return self.exit_code() is not None

    def terminate(self) -> None:
        """Send SIGTERM to the server."""
        self._order(TERMINATE)

    def kill(self) -> None:
        """Kill the server's process group."""
        self._order(KILL)

    def detach(self) -> None:
        """Let the server run on after the end of this process."""
        self._order(DETACH)

    def end(self) -> tuple[str, ...] | None:
        """Kill the server and everything that it started, and remove what it made.

        Returns:
            One phrase for each leftover; None if the supervisor was killed.
        """
        self._order(END)
        self._wait_until_over()
        left = self._reports.get("left")
        return tuple(printable(one_line(str(phrase))) for phrase in left) if isinstance(left, list) else None

    def _wait_until_over(self) -> None:
        until = time.monotonic() + _END_SECONDS
        while not self._over and (rest := until - time.monotonic()) > 0:
            self._read(rest)
        if not self._over:
            self._program.kill()
        self._program.wait()
        self._close_orders()
        self._close_results()
        self._over = True

    def _order(self, order: str) -> None:
        if self._close_orders.alive:
            with contextlib.suppress(BrokenPipeError):  # it has ended, which the end of the reports says, too
                os.write(self._orders, order.encode())

    def _read(self, seconds: float) -> None:
        """Read reports; wait for the first one."""
        while not self._over and _readable(self._results, seconds):
            piece = os.read(self._results, 1 << 16)
            self._over = not piece
            *lines, self._unread = (self._unread + piece).split(b"\n")
            for line in lines:
                self._reports.update(json.loads(line))
            seconds = 0


def _readable(descriptor: int, seconds: float) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(seconds * 1000))
