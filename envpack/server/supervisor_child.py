"""Runs a Triton server for envpack, ends with envpack, and leaves nothing behind: a program of its own.

envpack can be killed at any moment, and a model can start processes that the server does not know. So this program
runs between envpack and the server. It notices the end of envpack by the end of the pipe that brings the orders. It is
the subreaper of everything that the server starts: a process whose parent ends becomes its child, in whatever session.
If this program is killed, the kernel kills the server.

It also records which shared memory and which folders of extracted environments the server and its descendants make. At
the end it removes these, if each is still the same object, and no others.

`supervisor` starts it without site-packages. It imports the standard library only, so it starts within milliseconds.
The first line on the pipe of orders is JSON, see `main`; each byte after it is an order. Reports are lines of JSON:
``pid`` or ``error`` once, ``exit`` when the server has ended, and ``left`` at the end: one phrase for each leftover.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
import time

from envpack.server.made_objects import LIBC, MadeObjects, drain, remove
from envpack.server.proc import children, descendants, phrase

TERMINATE, KILL, DETACH, END = "t", "k", "d", "e"
MADE = "made"  # file in the server's folder that lists what it has made
_SET_DEATH_SIGNAL, _SET_SUBREAPER = 1, 36  # of prctl()
_GRACE_SECONDS = 2.0  # in which processes can end by themselves after the server
_KILLED_GRACE_SECONDS = 0.2  # in which those of a group that was killed disappear
_KILL_SECONDS = 10.0
_MOST = 50  # phrases of a report


class Supervisor:
    """A server, and the loop that watches it."""

    def __init__(self, orders: int, reports: int, home: str, prefix: str, parent: int) -> None:
        self._orders, self._reports = orders, reports
        self._home, self._prefix, self._parent = home, prefix, parent
        self._detached = self._ended = self._crashed = self._finished = self._abandoned = False
        self._grace = _GRACE_SECONDS
        self._wake, self._woken = os.pipe()
        for descriptor in (self._wake, self._woken):
            os.set_blocking(descriptor, False)
        self._made = MadeObjects(prefix, f"{home}/{MADE}")
        self._server = 0

    def run(self, command: list[str], environment: dict[str, str]) -> None:
        LIBC.prctl(_SET_SUBREAPER, 1, 0, 0, 0)
        try:
            self._server = _start(command, environment)
        except OSError as error:
            self._report("error", error.errno)
            return
        signal.set_wakeup_fd(self._woken, warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._note)
        self._report("pid", self._server)
        self._watch()
        self._report("left", self._clean_up())
        if self._abandoned:
            remove(self._home)

    def _watch(self) -> None:
        """Follow orders until the end is ordered, envpack is gone, or a server that was left running has ended."""
        poll = select.poll()
        for descriptor in (self._orders, self._wake, self._made.fileno()):
            if descriptor >= 0:
                poll.register(descriptor, select.POLLIN)
        seconds = 0.0
        while not (self._finished or self._abandoned):
            ready = {descriptor for descriptor, _ in poll.poll(seconds * 1000)}
            drain(self._wake)
            self._reap()
            seconds = self._made.look(0 if self._ended else self._server)
            is_orphan = os.getppid() != self._parent
            if is_orphan:  # its last orders may have come since, and one of them may be to go on
                ready |= {descriptor for descriptor, _ in poll.poll(0)}
            if self._orders in ready:
                self._follow(os.read(self._orders, 64), poll)  # no limit: poll() found something to read
            if is_orphan and not self._detached:
                self._abandoned = True  # never False again: a signal may come between a reading of it and a writing
            self._finished |= self._detached and self._ended

    def _follow(self, orders: bytes, poll: select.poll) -> None:
        if not orders:
            poll.unregister(self._orders)
            if not self._detached:
                self._abandoned = True
        for order in map(chr, orders):
            if order == TERMINATE and not self._ended:
                os.kill(self._server, signal.SIGTERM)
            elif order == KILL:
                self._kill_server()
            elif order == DETACH:
                self._detached = True
            elif order == END:
                self._finished = True

    def _note(self, number: int, frame: object) -> None:  # noqa: ARG002 - the signature of a handler
        if number != signal.SIGCHLD:
            self._abandoned = True

    def _kill_server(self) -> None:
        self._grace = _KILLED_GRACE_SECONDS
        if not self._ended:  # its number is not used again before it is reaped
            os.killpg(self._server, signal.SIGKILL)

    def _reap(self) -> bool:
        """Collect the status of ended children; returns whether a child is left."""
        try:
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return True
                if pid == self._server:
                    self._ended, self._crashed = True, status != 0
                    self._report("exit", os.waitstatus_to_exitcode(status))
        except ChildProcessError:
            return False

    def _clean_up(self) -> list[str]:
        """End every process and remove every object that is left; returns one phrase for each."""
        if self._abandoned or not self._ended:
            self._kill_server()
        until = time.monotonic() + self._grace
        while self._reap() and time.monotonic() < until:
            time.sleep(0.005)
        left = [phrase(pid) for pid in descendants()] if self._reap() else []
        until = time.monotonic() + _KILL_SECONDS
        while self._reap() and time.monotonic() < until:
            # Only children, whose numbers cannot be used again before this process reaps them. Theirs become ours.
            for pid in children():
                with contextlib.suppress(OSError):  # it is another user's
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.002)
        self._made.look(0)
        left += self._made.remove(crashed=self._crashed)
        more = [f"{len(left) - _MOST} more"] if len(left) > _MOST else []
        return left[:_MOST] + more

    def _report(self, key: str, value: object) -> None:
        with contextlib.suppress(OSError):  # envpack is gone
            os.write(self._reports, json.dumps({key: value}).encode() + b"\n")


def _start(command: list[str], environment: dict[str, str]) -> int:
    """Start the server in its own session; it never outlives this process."""
    supervisor = os.getpid()
    failed, failure = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            LIBC.prctl(_SET_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
            if os.getppid() != supervisor:
                os._exit(1)
            os.setsid()
            for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, and exec() keeps that
                signal.signal(number, signal.SIG_DFL)
            os.execve(command[0], command, environment)
        except OSError as error:
            os.write(failure, str(error.errno).encode())
        finally:
            os._exit(127)
    os.close(failure)
    reason = os.read(failed, 16)  # no limit: exec() or the end of the child closes it
    os.close(failed)
    if reason:
        os.waitpid(pid, 0)
        raise OSError(int(reason), os.strerror(int(reason)))
    return pid


def main() -> None:
    """Read the settings from the first line of orders and supervise a server."""
    home, orders, reports = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    for descriptor in (orders, reports):
        os.set_inheritable(descriptor, False)
    line = b""
    while not line.endswith(b"\n"):
        piece = os.read(orders, 1)  # no limit: envpack writes it at once, or is gone
        if not piece:  # envpack is gone
            return remove(home)
        line += piece
    settings = json.loads(line)
    supervisor = Supervisor(orders, reports, home, settings["prefix"], settings["parent"])
    supervisor.run(settings["command"], settings["environment"])
    return None
