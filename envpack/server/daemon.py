"""Finds the container daemon of this machine, and converts its errors."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from envpack.support.errors import ServerError

if TYPE_CHECKING:
    import docker

_ANSWER_SECONDS = 60
_NO_GPU = ("could not select device driver", "nvidia.com/gpu", "Unknown runtime specified nvidia", "/dev/nvidia")


@dataclass(frozen=True)
class Daemon:
    """A container daemon that accepts connections.

    Attributes:
        client: the Docker SDK's client, connected to it.
        name: ``"docker"`` or ``"podman"``.
        address: its socket, in the form of ``DOCKER_HOST``.
    """

    client: docker.DockerClient
    name: str
    address: str


def find_daemon() -> Daemon:
    """Connect to the daemon in ``DOCKER_HOST``, else to Docker on this machine, else to podman."""
    reasons = []
    for address in _addresses():
        if not address.startswith(("unix://", "npipe://")):
            raise ServerError(
                "the container daemon runs on another machine, which has no access to this model repository",
                kind="docker-remote",
                where=address,
                hint="run envpack on that machine, or unset DOCKER_HOST",
            )
        if not Path(address.removeprefix("unix://")).exists():
            reasons.append(f"{address}: the socket does not exist")
            continue
        try:
            return _connect(address)
        except ServerError as error:
            reasons.append(f"{address}: {error.message}")
    raise ServerError(
        "no container daemon is running",
        kind="docker-missing",
        hint="start Docker, or podman's socket (systemctl start podman.socket), or use --runtime process",
        details="\n".join(reasons),
    )


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
            raise no_gpu(text) from error
        raise ServerError(
            f"the container daemon failed: {text}",
            kind="docker-failed",
            hint="read the daemon's log; docker info shows whether the daemon is running",
        ) from error


def no_gpu(text: str) -> ServerError:
    """The error for a daemon that has no access to a GPU; ``text`` is the daemon's message."""
    return ServerError(
        f"this daemon has no access to a GPU: {text}",
        kind="no-gpu",
        hint="install nvidia-container-toolkit, run nvidia-ctk runtime configure --runtime=docker, restart Docker",
    )


def _connect(address: str) -> Daemon:
    import docker

    with daemon_errors():
        client = docker.DockerClient(base_url=address, timeout=_ANSWER_SECONDS)
        with contextlib.closing(client):  # closes the connections that this request opens
            components = client.version().get("Components") or []
    is_podman = any("podman" in str(component.get("Name", "")).lower() for component in components)
    return Daemon(client, "podman" if is_podman else "docker", address)


def _addresses() -> list[str]:
    named = os.environ.get("DOCKER_HOST", "")
    if named:
        return [named]
    own = os.environ.get("XDG_RUNTIME_DIR", "")
    rootless = [f"unix://{own}/docker.sock", f"unix://{own}/podman/podman.sock"] if own else []
    return ["unix:///var/run/docker.sock", *rootless, "unix:///run/podman/podman.sock"]
