"""Finds the daemon that runs containers, and turns what it refuses into errors that say what to do."""

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
    """A daemon that answers.

    Attributes:
        client: speaks to it.
        name: ``"docker"`` or ``"podman"``.
        address: as in ``DOCKER_HOST``.

    """

    client: docker.DockerClient
    name: str
    address: str


def find_daemon() -> Daemon:
    """The daemon that ``DOCKER_HOST`` names, else Docker's on this machine, else podman's.

    Raises:
        ServerError: none answers (kind ``docker-missing``), or it is on another machine (``docker-remote``).

    """
    reasons = []
    for address in _addresses():
        if not address.startswith(("unix://", "npipe://")):
            raise ServerError(
                "the container daemon is on another machine, which cannot see this model repository",
                kind="docker-remote",
                where=_without_password(address),
                hint="run envpack there, or unset DOCKER_HOST",
            )
        if not Path(address.removeprefix("unix://")).exists():
            reasons.append(f"{address}: no such socket")
            continue
        try:
            return _connect(address)
        except ServerError as error:
            reasons.append(f"{address}: {error.message}")
    raise ServerError(
        "no container daemon answers",
        kind="docker-missing",
        hint="start Docker, or podman's socket (systemctl start podman.socket), or use --runtime process",
        details="\n".join(reasons),
    )


@contextlib.contextmanager
def daemon_errors() -> Iterator[None]:
    """Turn what the daemon refuses, or its silence, into a `ServerError` (``docker-failed``, ``no-gpu``)."""
    import docker
    import requests

    try:
        yield
    except (docker.errors.DockerException, requests.RequestException) as error:
        text = str(getattr(error, "explanation", None) or error)
        if any(phrase in text for phrase in _NO_GPU):
            raise no_gpu(text) from error
        raise ServerError(
            f"the container daemon: {text}",
            kind="docker-failed",
            hint="look at the daemon's own log; docker info shows whether it answers",
        ) from error


def no_gpu(text: str) -> ServerError:
    """The error for a daemon that has no GPU to give; ``text`` is what it said."""
    return ServerError(
        f"no GPU is within reach of this daemon: {text}",
        kind="no-gpu",
        hint="install nvidia-container-toolkit, run nvidia-ctk runtime configure --runtime=docker, restart Docker",
    )


def _connect(address: str) -> Daemon:
    import docker

    with daemon_errors():
        client = docker.DockerClient(base_url=address, timeout=_ANSWER_SECONDS)
        with contextlib.closing(client):  # of the connections that this question takes
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


def _without_password(address: str) -> str:
    scheme, separator, rest = address.partition("://")
    return f"{scheme}{separator}{rest.rpartition('@')[2]}"
