"""The socket between envpack and a model's process, and how long each wait for that may take.

``stub_src/local/connection.h`` has the other side.
"""

from __future__ import annotations

import contextlib
import enum
import fcntl
import math
import os
import queue
import resource
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from envpack.local.values import Reader, Writer

_HEADER = struct.Struct("<QQQ")  # kind, id, size of the content in bytes
_HIGHEST = 1 << 16
_RESERVED = 16  # numbers below the limit, for several connections
_MOST_PARTS = 512  # of one call of the kernel
_MOST_BYTES = 1 << 36  # of one message
_FIRST_BYTES = 64 << 20  # of a message that are read at once


class Kind(enum.IntEnum):
    """What a message is."""

    START = 1
    AUTO_COMPLETE = 2
    INITIALIZE = 3
    EXECUTE = 4
    FINALIZE = 5
    ANSWER = 6
    STREAM_RESPONSE = 7
    READINESS = 8

    COMPLETED = 100
    INITIALIZED = 101
    EXECUTED = 102
    FINALIZED = 103
    LOG = 104
    IS_READY = 105

    SEND = 200
    DELETE_FACTORY = 201
    IS_CANCELLED = 202
    INFER = 203
    END_STREAM = 204
    CANCEL_STREAM = 205
    CREATE_METRIC_FAMILY = 206
    DELETE_METRIC_FAMILY = 207
    CREATE_METRIC = 208
    DELETE_METRIC = 209
    CHANGE_METRIC = 210
    METRIC_VALUE = 211
    LOAD_MODEL = 212
    UNLOAD_MODEL = 213
    IS_MODEL_READY = 214


@dataclass(frozen=True)
class Message:
    """A message."""

    kind: Kind
    id: int  # of a query, and of its answer
    content: Reader


@contextlib.contextmanager
def connected(seconds: float) -> Iterator[tuple[socket.socket, int]]:
    """A connection: our end, and the descriptor of the other end for a process that is started in the block.

    That has a high number, since programs close those above 2 that they find, up to a number. Sending to a process that
    reads nothing ends after so many seconds; `TimeoutError`.
    """
    ours, theirs = socket.socketpair()
    if math.isfinite(seconds):
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("@ll", int(seconds) + 1, 0))
    try:
        with theirs:
            number = _high_copy(theirs.fileno())
            try:
                yield ours, number
            finally:
                os.close(number)
    except BaseException:
        ours.close()
        raise


def _high_copy(descriptor: int) -> int:
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = min(most, _HIGHEST) - _RESERVED if most > 0 else _HIGHEST
    return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, max(lowest, 3))


class Connection:
    """One end of the socket."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        self._sending = threading.Lock()

    def send(self, kind: Kind, content: Writer | None = None, number: int = 0) -> None:
        """Send a message; any thread."""
        content = content or Writer()
        parts: list[bytes | memoryview] = [_HEADER.pack(kind, number, content.size), *content.parts]
        with self._sending:
            while parts:
                self._send_some(parts)

    def receive(self) -> Message | None:
        """Wait for the next message; None if the other end is closed. One thread."""
        header = self._read(_HEADER.size)
        if header is None:
            return None
        kind, number, size = _HEADER.unpack(header)
        if size > _MOST_BYTES:
            raise ValueError("a message is too large")
        content = self._read(size)
        return None if content is None else Message(Kind(kind), number, Reader(content))

    def end(self) -> None:
        """Send nothing more. A thread that waits for a message gets those that have come, and then None."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close this end. No thread may wait for a message."""
        self._socket.close()

    def _send_some(self, parts: list[bytes | memoryview]) -> None:
        try:
            sent = self._socket.sendmsg(parts[:_MOST_PARTS])
        except BlockingIOError as error:  # SO_SNDTIMEO
            raise TimeoutError("nothing was read") from error
        done = 0
        while done < len(parts) and sent >= len(parts[done]):
            sent -= len(parts[done])
            done += 1
        del parts[:done]
        if sent:
            parts[0] = memoryview(parts[0])[sent:]

    def _read(self, size: int) -> bytearray | None:
        content = bytearray()
        while len(content) < size:
            start = len(content)
            content += bytes(min(size - start, max(start, _FIRST_BYTES)))  # only as far as it comes
            if not self._fill(memoryview(content)[start:]):
                return None
        return content

    def _fill(self, left: memoryview) -> bool:
        """Read that many bytes; whether all have come."""
        while left:
            try:
                count = self._socket.recv_into(left)  # no limit: the end of the process closes the connection
            except OSError:
                return False
            if not count:
                return False
            left = left[count:]
        return True


_Found = TypeVar("_Found")
MORE_TIME = "--timeout, in pytest --envpack-timeout, allows more time"
_SLICE = 1.0  # seconds after which a wait looks again whether the clock has stood still


def next_of(waiting: queue.SimpleQueue[_Found], seconds: float) -> tuple[_Found, ...]:
    """The next of what waits in a queue; nothing if none comes within so many seconds."""
    try:
        return (waiting.get(timeout=seconds),)
    except queue.Empty:
        return ()


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
        """Wait by several attempts; returns the first true result of one, or the last if the time is over."""
        while True:
            left = until - self.now()
            found = attempt(max(0.0, min(left, _SLICE)))
            if found or left <= 0:
                return found
