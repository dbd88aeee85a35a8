"""What a container of a server may do and see: no more than it must."""

from __future__ import annotations

import os
import resource
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from envpack.containers import Daemon
from envpack.server.stale_runs import this_owner

LABEL, KEPT_LABEL = "envpack.verify", "envpack.keep"
HOME = "/tmp"  # noqa: S108 - in the container, where it is memory of its own
_NOBODY = 65534
_MOST_PROCESSES = 4096  # threads count too, and a BLAS starts one for each core in every model
_MOST_FILES = 65536


@dataclass(frozen=True)
class Mount:
    """A file or folder of this machine that the container sees, read-only.

    Attributes:
        source: here, links resolved.
        target: there.

    """

    source: Path
    target: str

    def server_path(self, path: Path) -> str:
        """Where ``path`` is in the container, ``""`` if not in this mount."""
        return str(PurePosixPath(self.target) / path.relative_to(self.source)) if self._holds(path) else ""

    def host_path(self, place: str) -> Path | None:
        """The file of this machine that the container sees at ``place``, None if it is not in this mount."""
        inside = PurePosixPath(place)
        return self.source / inside.relative_to(self.target) if inside.is_relative_to(self.target) else None

    def _holds(self, path: Path) -> bool:
        return path.is_relative_to(self.source)


@dataclass(frozen=True)
class ContainerSettings:
    """What a container of a server gets.

    Attributes:
        daemon: what runs containers.
        image: the image; it is never pulled unless ``pull`` says so.
        served_from: where the model repository is in the container.
        same_path_mounts: further files and folders that the server sees at the same place: environments outside of the
            repository that models name, and libraries.
        backends: further backend folders, by name.
        environment: variables for the server beyond the few that it gets anyway.
        arguments: further arguments of tritonserver.
        port: HTTP port on 127.0.0.1; None lets the daemon choose a free one.
        gpu: hand all GPUs to the container.
        pull: fetch the image if the daemon does not have it.
        shm_bytes: size of ``/dev/shm``, bytes.
        memory_bytes: how much memory it may take, ``/tmp`` included, bytes; None sets no limit.
        tmp_bytes: size of ``/tmp``, where the server unpacks environments, bytes.
        start_seconds: how long it may take until it answers.
        keep: it may be left running; later runs do not take it for one that was abandoned.

    """

    daemon: Daemon
    image: str
    served_from: str = "/models"
    same_path_mounts: tuple[Path, ...] = ()
    backends: Mapping[str, Path] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    arguments: tuple[str, ...] = ()
    port: int | None = None
    gpu: bool = False
    pull: bool = False
    shm_bytes: int = 256 << 20
    memory_bytes: int | None = None
    tmp_bytes: int = 4 << 30
    start_seconds: float = 60.0
    keep: bool = False


def container_options(settings: ContainerSettings, mounts: tuple[Mount, ...], http_port: int) -> dict[str, Any]:
    """Keyword arguments of the Docker SDK's ``containers.create``.

    The root of the file system is read-only; ``/tmp`` is memory, and programs may be run from it, since the server
    unpacks environments there and loads their libraries; no capability is left, and none can be gained.
    """
    import docker

    options: dict[str, Any] = {
        "labels": {LABEL: this_owner()} | ({KEPT_LABEL: "yes"} if settings.keep else {}),
        "read_only": True,
        "tmpfs": {"/tmp": f"exec,mode=1777,size={settings.tmp_bytes}"},  # noqa: S108
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges"],
        "user": _user(),
        "init": settings.daemon.name == "docker",  # podman's is a package of its own, which is often missing
        "pids_limit": _MOST_PROCESSES,
        "ulimits": [docker.types.Ulimit(name=name, soft=most, hard=most) for name, most in _limits(settings).items()],
        "shm_size": settings.shm_bytes,
        "ports": {f"{http_port}/tcp": ("127.0.0.1", settings.port)},
        "environment": {"HOME": HOME, **settings.environment},
        "mounts": [docker.types.Mount(m.target, str(m.source), type="bind", read_only=True) for m in mounts],
    }
    if settings.memory_bytes is not None:
        # With as much swap as memory, none is left to swap to: a model that is too large ends, and does not crawl.
        options |= {"mem_limit": settings.memory_bytes, "memswap_limit": settings.memory_bytes}
    if settings.gpu:
        options |= _gpu(settings.daemon.name)
    return options


def _limits(settings: ContainerSettings) -> dict[str, int]:
    """No core dumps, and no more than this process may have: a daemon in a container cannot go beyond that.

    Podman asks for as many processes as there can be unless it is told otherwise.
    """
    limits = {"nofile": _at_most(_MOST_FILES, resource.RLIMIT_NOFILE), "core": 0}
    if settings.daemon.name == "podman":
        limits["nproc"] = _at_most(_MOST_PROCESSES, resource.RLIMIT_NPROC)
    return limits


def _at_most(most: int, kind: int) -> int:
    own = resource.getrlimit(kind)[1]
    return most if own == resource.RLIM_INFINITY else min(most, own)


def _user() -> str:
    """The caller, who can read the models, or nobody in place of root."""
    return f"{os.getuid()}:{os.getgid()}" if os.getuid() else f"{_NOBODY}:{_NOBODY}"


def _gpu(daemon: str) -> dict[str, Any]:
    import docker

    if daemon == "podman":  # it takes Docker's request without a word, and gives no GPU
        return {"devices": ["nvidia.com/gpu=all"]}
    return {"device_requests": [docker.types.DeviceRequest(count=-1, capabilities=[["gpu"]])]}
