"""Finds the container daemon of this machine, converts its errors, and runs scripts in one bash process of a container.

Starting a process in a container takes about 0.1 s, and podman keeps a helper process for minutes after each one.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
import shlex
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from envpack.support.bounded_reading import read_json
from envpack.support.errors import ServerError

if TYPE_CHECKING:
    import socket

    import docker
    from docker.models.containers import Container


_ANSWER_SECONDS = 60
_DOCKER, _PODMAN = "unix:///var/run/docker.sock", "unix:///run/podman/podman.sock"
_NETWORK = re.compile(r"(?:tcp|https?|ssh)://\S")
_LOOPBACK = re.compile(r"[a-z]+://(?:[^@/]*@)?(?:localhost|127(?:\.\d{1,3}){3}|\[::1\])(?:[:/]|$)")
_TIMED_OUT = "timed out"  # in the Docker SDK's error for a daemon that accepts a connection, and says nothing
_NO_GPU = ("could not select device driver", "nvidia.com/gpu", "Unknown runtime specified nvidia", "/dev/nvidia")


@dataclass(frozen=True)
class Daemon:
    """A container daemon that accepts connections."""

    client: docker.DockerClient  # the Docker SDK's client, connected to it
    name: str  # ``"docker"`` or ``"podman"``
    address: str  # its socket, in the form of ``DOCKER_HOST``
    rootless: bool = False  # whether it runs as this user, who is root then in its containers


def find_daemon() -> Daemon:
    """Connect to the daemon in ``DOCKER_HOST``, else of docker's context, else to Docker on this machine, or podman."""
    reasons, denied, silent = [], "", ""
    named = os.environ.get("DOCKER_HOST") or _host_of_context()
    for address in [named] if named else _usual_addresses():
        if not address.startswith(("unix://", "npipe://")):
            raise _not_a_socket(address)
        file = Path(address.removeprefix("unix://"))
        try:
            file.stat()
        except PermissionError:  # only root may enter /run/podman, whether or not podman runs
            denied = denied or (address if named else "")
            reasons.append(f"{address}: this user may not enter its folder")
            continue
        except (OSError, ValueError):
            reasons.append(f"{address}: the socket does not exist")
            continue
        if not os.access(file, os.R_OK | os.W_OK):
            denied = denied or address
            continue
        try:
            return _connect(address)
        except ServerError as error:
            reasons.append(f"{address}: {error.message}")
            silent = silent or (address if _TIMED_OUT in error.message else "")
    if silent:
        what = f"the container daemon does not answer within {_ANSWER_SECONDS:g} s"
        fix = "restart it, or use --runtime process"
        raise ServerError("docker-missing", what, fix, silent, details="\n".join(reasons))
    if denied:
        what = "this user may not use the container daemon"
        fix = "add the user to the group of its socket (usermod -aG docker USER) and log in again, or use"
        raise ServerError("docker-denied", what, f"{fix} --runtime process", denied, details="\n".join(reasons))
    fix = "start Docker, or podman's socket (systemctl start podman.socket), or use --runtime process"
    raise ServerError("docker-missing", "no container daemon is running", fix, details="\n".join(reasons))


def _not_a_socket(address: str) -> ServerError:
    if not _NETWORK.match(address):
        what = "this is no address of a container daemon"
        return ServerError("docker-missing", what, f"write it as {_DOCKER}, or {_unset()}", address)
    if _LOOPBACK.match(address):
        what = "the container daemon is reached by the network, and may not have this machine's folders"
        return ServerError("docker-remote", what, f"name its socket: DOCKER_HOST={_DOCKER}", address)
    what = "the container daemon runs on another machine, which has no access to this model repository"
    return ServerError("docker-remote", what, f"run envpack on that machine, or {_unset()}", address)


def _unset() -> str:
    named = next((name for name in ("DOCKER_HOST", "DOCKER_CONTEXT") if os.environ.get(name)), "")
    return f"unset {named}" if named else "run docker context use default"


@contextlib.contextmanager
def daemon_errors() -> Iterator[None]:
    """Convert errors and timeouts of the daemon to `ServerError` (kinds ``docker-failed`` and ``no-gpu``)."""
    import docker
    import requests

    try:
        yield
    except (docker.errors.DockerException, requests.RequestException) as error:
        text = str(getattr(error, "explanation", None) or error)
        if any(phrase in text for phrase in _NO_GPU):
            fix = "install nvidia-container-toolkit, run nvidia-ctk runtime configure --runtime=docker, restart Docker"
            raise ServerError("no-gpu", f"this daemon has no access to a GPU: {text}", fix) from error
        if "invalid reference format" in text:
            fix = "correct the name: registry/name:tag, in lower case"
            raise ServerError("image-missing", f"no image has such a name: {text}", fix) from error
        fix = "read the daemon's log; docker info shows whether the daemon is running"
        raise ServerError("docker-failed", f"the container daemon failed: {text}", fix) from error


def _connect(address: str) -> Daemon:
    import docker

    with daemon_errors():
        client = docker.DockerClient(base_url=address, timeout=_ANSWER_SECONDS)
        with contextlib.closing(client):  # closes the connections that this request opens
            components = client.version().get("Components") or []
            info = client.info() if os.getuid() else {}
    rootless = bool(info.get("Rootless")) or "name=rootless" in (info.get("SecurityOptions") or ())
    is_podman = any("podman" in str(component.get("Name", "")).lower() for component in components)
    return Daemon(client, "podman" if is_podman else "docker", address, rootless)


def _host_of_context() -> str:
    """The daemon that the command docker uses instead of the default; ``""`` if it uses the default."""
    folder = Path(os.environ.get("DOCKER_CONFIG") or os.path.expanduser("~/.docker"))  # noqa: PTH111 - never raises
    name = os.environ.get("DOCKER_CONTEXT") or _said_in(folder / "config.json", "currentContext")
    if name in ("", "default"):
        return ""
    context = folder / "contexts/meta" / hashlib.sha256(name.encode()).hexdigest() / "meta.json"
    return _said_in(context, "Endpoints", "docker", "Host")


def _said_in(file: Path, *keys: str) -> str:
    try:
        value = read_json(file)
        for key in keys:
            value = value[key]
    except (OSError, ValueError, LookupError, TypeError):
        return ""
    return value if isinstance(value, str) else ""


def _usual_addresses() -> list[str]:
    own = os.environ.get("XDG_RUNTIME_DIR", "")
    rootless = [f"unix://{own}/docker.sock", f"unix://{own}/podman/podman.sock"] if own else []
    return [_DOCKER, *rootless, _PODMAN]


_SCRIPT_SECONDS = 10.0
_SCRIPT_BYTES = 64 << 20  # any process of the container's user can write to the shell's output
_STANDARD_OUTPUT = 1
_HEADER = 8  # of each frame of the daemon's stream: stream number, three zero bytes, length (four bytes, big endian)


class ContainerShell:
    """A shell in a container as its own user, started by the first `run`; it runs one script at a time."""

    def __init__(self, container: Container) -> None:
        self._container = container
        self._stream: Any = None  # the SDK's wrapper; the connection closes when the wrapper is collected
        self._connection: socket.socket | None = None
        self._turn = threading.RLock()

    def run(self, script: str, argument: str) -> bytes:
        """The standard output of a script; empty if the container has ended, and for more than 64 MiB or 10 s."""
        import docker
        import requests

        end = secrets.token_bytes(16)  # a process in the container could write what it knows
        with self._turn:
            try:
                self._connection = self._connection or self._start()
                self._connection.settimeout(_SCRIPT_SECONDS)
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
    until = time.monotonic() + _SCRIPT_SECONDS
    answer = bytearray()
    while not answer.endswith(end):
        header = _exactly(connection, _HEADER, until)
        size = int.from_bytes(header[4:], "big")
        if len(answer) + size > _SCRIPT_BYTES:
            raise ConnectionError("the shell in the container writes too much")
        piece = _exactly(connection, size, until)
        if header[0] == _STANDARD_OUTPUT:
            answer += piece
    return bytes(answer.removesuffix(end))


def _exactly(connection: socket.socket, count: int, until: float) -> bytes:
    parts = []
    while count:
        connection.settimeout(max(0.001, until - time.monotonic()))
        part = connection.recv(count)  # limit: settimeout()
        if not part:
            raise ConnectionError("the shell in the container has ended")
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def _octal(text: bytes) -> str:
    """Text as octal escapes for printf, so that an echo of the command cannot be mistaken for its output."""
    return "".join(f"\\{byte:03o}" for byte in text)
