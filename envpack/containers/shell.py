"""One bash process in a container that runs many scripts.

Starting a process in a container takes about 0.1 s, and podman keeps a helper process for minutes after each one.
"""

from __future__ import annotations

import contextlib
import secrets
import shlex
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import socket

    from docker.models.containers import Container

_ANSWER_SECONDS = 10.0
_STANDARD_OUTPUT = 1
_HEADER = 8  # of each frame of the daemon's stream: stream number, three zero bytes, length (four bytes, big endian)


class ContainerShell:
    """A shell in a container, started by the first `run`, as the container's own user.

    Args:
        container: a running container of the Docker SDK.

    """

    def __init__(self, container: Container) -> None:
        self._container = container
        self._stream: Any = None  # the SDK's wrapper; the connection closes when the wrapper is collected
        self._connection: socket.socket | None = None

    def run(self, script: str, argument: str) -> bytes:
        """Run a script and return its standard output; empty if the container has ended.

        Args:
            script: bash code. It must not end the shell or read standard input.
            argument: the value of ``$1``.

        """
        import docker
        import requests

        end = secrets.token_bytes(16)  # a process in the container could write what it knows
        try:
            self._connection = self._connection or self._start()
            self._connection.sendall(f"set -- {shlex.quote(argument)}\n{script}\nprintf '{_octal(end)}'\n".encode())
            return _answer(self._connection, end)
        except (OSError, docker.errors.DockerException, requests.RequestException):
            self.close()
            return b""

    def close(self) -> None:
        """End the shell; the next `run` starts another one."""
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
        connection.settimeout(_ANSWER_SECONDS)
        return connection


def _answer(connection: socket.socket, end: bytes) -> bytes:
    answer = b""
    while not answer.endswith(end):
        header = _exactly(connection, _HEADER)
        piece = _exactly(connection, int.from_bytes(header[4:], "big"))
        if header[0] == _STANDARD_OUTPUT:
            answer += piece
    return answer.removesuffix(end)


def _exactly(connection: socket.socket, count: int) -> bytes:
    parts = []
    while count:
        part = connection.recv(count)
        if not part:
            raise ConnectionError("the shell in the container has ended")
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def _octal(text: bytes) -> str:
    """Text as octal escapes for printf, so that an echo of the command cannot be mistaken for its output."""
    return "".join(f"\\{byte:03o}" for byte in text)
