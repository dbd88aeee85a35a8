"""Sends requests to a server over HTTP as fast as it responds, on several connections at once.

Requests are encoded in advance, and one thread serves all connections, so that the client adds little to the
measurement.
"""

from __future__ import annotations

import json
import re
import select
import socket
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

_BUFFER = 1 << 20
_LENGTH = re.compile(rb"\r\ncontent-length: *([0-9]+)", re.IGNORECASE)
_END_OF_CHUNKS = b"\r\n0\r\n\r\n"


class LoadError(Exception):
    """The server returned an error, or did not respond."""


def infer_request(model: str, inputs: dict[str, tuple[str, tuple[int, ...], bytes]]) -> bytes:
    """An inference request with binary tensors.

    Args:
        model: name of the model.
        inputs: data type, shape and bytes of each input, by name.

    """
    described = [
        {"name": name, "datatype": datatype, "shape": shape, "parameters": {"binary_data_size": len(raw)}}
        for name, (datatype, shape, raw) in inputs.items()
    ]
    header = json.dumps({"inputs": described, "parameters": {"binary_data_output": True}}).encode()
    body = header + b"".join(raw for _, _, raw in inputs.values())
    return _post(f"/v2/models/{model}/infer", body, f"Inference-Header-Content-Length: {len(header)}\r\n")


def stream_request(model: str, inputs: Mapping[str, object]) -> bytes:
    """A request to a decoupled model; the server streams all responses."""
    return _post(f"/v2/models/{model}/generate_stream", json.dumps(inputs).encode())


def _post(path: str, body: bytes, headers: str = "") -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\n{headers}Content-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


@dataclass(frozen=True)
class Outcome:
    """The result of a run: its duration, and the latency of each request, in seconds, shortest first."""

    seconds: float
    latencies: list[float] = field(repr=False)

    def quantile(self, part: float) -> float:
        return self.latencies[min(len(self.latencies) - 1, int(part * len(self.latencies)))]

    @property
    def per_second(self) -> float:
        return len(self.latencies) / self.seconds


class Load:
    """Connections to a server. Close them before you stop the server, which waits for open connections."""

    def __init__(self, port: int, connections: int) -> None:
        self._connections = [_Connection(port) for _ in range(connections)]
        self._poll = select.epoll()
        for connection in self._connections:
            self._poll.register(connection.descriptor, select.EPOLLIN)

    def __enter__(self) -> Load:
        return self

    def __exit__(self, *_: object) -> None:
        self._poll.close()
        for connection in self._connections:
            connection.close()

    def run(self, requests: Iterator[bytes], seconds: float = float("inf")) -> Outcome:
        """Send requests until none is left or the time is over; each connection has one request at a time.

        Raises:
            LoadError: the server returned an error, or did not respond within a minute.

        """
        started = time.perf_counter()
        latencies: list[float] = []
        busy = {c.descriptor: c for c in self._connections if self._begin(c, next(requests, None))}
        while busy:
            for descriptor, event in self._poll.poll(60) or _silent():
                connection = busy[descriptor]
                if event & select.EPOLLOUT:
                    self._continue(connection)
                if event & ~select.EPOLLOUT and connection.receive():
                    now = time.perf_counter()
                    latencies.append(now - connection.started)
                    more = next(requests, None) if now - started < seconds else None
                    if not self._begin(connection, more):
                        del busy[descriptor]
        return Outcome(time.perf_counter() - started, sorted(latencies))

    def _begin(self, connection: _Connection, request: bytes | None) -> bool:
        if request is None:
            return False
        connection.begin(request)
        self._continue(connection)
        return True

    def _continue(self, connection: _Connection) -> None:
        """Write as much as the socket accepts; watch it for writing only while data is left."""
        waiting = connection.blocked
        connection.send()
        if connection.blocked != waiting:
            events = select.EPOLLIN | (select.EPOLLOUT if connection.blocked else 0)
            self._poll.modify(connection.descriptor, events)


def _silent() -> list[tuple[int, int]]:
    raise LoadError("no response within a minute")


class _Connection:
    """A connection with at most one pending request."""

    _buffer = bytearray(_BUFFER)

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.setblocking(False)
        self.descriptor = self._socket.fileno()
        self._left = memoryview(b"")
        self.blocked = False

    def close(self) -> None:
        self._socket.close()

    def begin(self, request: bytes) -> None:
        self._left = memoryview(request)
        self._head = b""
        self._missing = -1  # bytes of the body; negative if unknown, or for chunked encoding
        self._in_body = False
        self.started = time.perf_counter()

    def send(self) -> None:
        try:
            while self._left:
                self._left = self._left[self._socket.send(self._left) :]
            self.blocked = False
        except BlockingIOError:
            self.blocked = True

    def receive(self) -> bool:
        """Read the available bytes; returns whether the response is complete."""
        size = self._socket.recv_into(self._buffer)
        if size == 0:
            raise LoadError("the server closed the connection")
        if not self._in_body:
            return self._read_head(bytes(self._buffer[:size]))
        if self._missing >= 0:
            self._missing -= size
            return self._missing == 0
        return self._ends(bytes(self._buffer[max(0, size - len(_END_OF_CHUNKS)) : size]))

    def _read_head(self, data: bytes) -> bool:
        self._head += data
        head, found, body = self._head.partition(b"\r\n\r\n")
        if not found:
            return False
        if not head.startswith(b"HTTP/1.1 200") or body.lstrip(b"0123456789abcdef\r\n").startswith(b'data: {"error'):
            raise LoadError(body.decode("utf-8", "replace")[:500])
        self._in_body = True
        length = _LENGTH.search(head)
        if length is None:
            self._tail = b""
            return self._ends(body[-len(_END_OF_CHUNKS) :])
        self._missing = int(length[1]) - len(body)
        return self._missing == 0

    def _ends(self, data: bytes) -> bool:
        self._tail = (self._tail + data)[-len(_END_OF_CHUNKS) :]
        return self._tail == _END_OF_CHUNKS
