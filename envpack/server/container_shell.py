"""One bash process in a container that runs many scripts.

Starting a process in a container takes about 0.1 s, and podman keeps a helper process for minutes after each one.
"""

from __future__ import annotations

import contextlib
import secrets
import shlex
import threading
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import socket

    from docker.models.containers import Container

_ANSWER_SECONDS = 10.0
_ANSWER_BYTES = 64 << 20  # any process of the container's user can write to the shell's output
_STANDARD_OUTPUT = 1
_HEADER = 8  # of each frame of the daemon's stream: stream number, three zero bytes, length (four bytes, big endian)


class ContainerShell:
    """A shell in a container, started by the first `run`, as the container's own user.

    Several threads can use it; it runs one script at a time.
    """

    def __init__(self, container: Container) -> None:
        self._container = container
        self._stream: Any = None  # the SDK's wrapper; the connection closes when the wrapper is collected
        self._connection: socket.socket | None = None
        self._turn = threading.RLock()

    def run(self, script: str, argument: str) -> bytes:
        """Run a script and return its standard output.

        The output is empty if the container has ended, or if it is above 64 MiB or not complete within 10 s.
        """
        import docker
        import requests

        end = secrets.token_bytes(16)  # a process in the container could write what it knows
        with self._turn:
            try:
                self._connection = self._connection or self._start()
                self._connection.settimeout(_ANSWER_SECONDS)
                lines = f"set -- {shlex.quote(argument)}\n{script}\nprintf '{_octal(end)}'\n"
                self._connection.sendall(lines.encode())
                return _answer(self._connection, end)
            except (OSError, docker.errors.DockerException, requests.RequestException):
                self.close()
                return b""

    def close(self) -> None:
        """End the shell; the next `run` starts another one."""
        with self._turn:
            for stream in (self._stream, self._connection):
                with contextlib.suppress(OSError):
                    if stream is not None:
                        stream.close()
            self._stream = self._connection = None

    def _start(self) -> socket.socket:
        api = self._container.client.api
        started = api.exec_create(self._container.id, ["bash", "--norc", "--noprofile"], stdin=True)
        self._stream = api.exec_start(started["Id"], socket=True)
        connection: socket.socket = getattr(self._stream, "_sock", self._stream)
        return connection


def _answer(connection: socket.socket, end: bytes) -> bytes:
    """What arrives before this end; raises OSError if it does not arrive, or above the limits of time and size."""
    until = time.monotonic() + _ANSWER_SECONDS
    answer = bytearray()
    while not answer.endswith(end):
        header = _exactly(connection, _HEADER, until)
        size = int.from_bytes(header[4:], "big")
        if len(answer) + size > _ANSWER_BYTES:
            raise ConnectionError("the shell in the container writes too much")
        piece = _exactly(connection, size, until)
        if header[0] == _STANDARD_OUTPUT:
            answer += piece
    return bytes(answer.removesuffix(end))


def _exactly(connection: socket.socket, count: int, until: float) -> bytes:
    parts = []
    while count:
        connection.settimeout(max(0.001, until - time.monotonic()))
        part = connection.recv(count)
        if not part:
            raise ConnectionError("the shell in the container has ended")
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def _octal(text: bytes) -> str:
    """Text as octal escapes for printf, so that an echo of the command cannot be mistaken for its output."""
    return "".join(f"\\{byte:03o}" for byte in text)
