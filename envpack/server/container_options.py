"""Privileges, mounts and limits of a server's container."""

from __future__ import annotations

import os
import resource
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from envpack.server.daemon import Daemon
from envpack.server.stale_runs import this_owner

LABEL, KEPT_LABEL = "envpack.verify", "envpack.keep"
HOME = "/tmp"  # noqa: S108 - a tmpfs in the container
_NOBODY = 65534
_MOST_PROCESSES = 4096  # threads count too, and a BLAS starts one per core in every model
_MOST_FILES = 65536


@dataclass(frozen=True)
class Mount:
    """A file or folder of this machine that is mounted read-only in the container."""

    source: Path  # with symbolic links resolved
    target: str

    def server_path(self, path: Path) -> str:
        """Path in the container of ``path`` on this machine, ``""`` if this mount does not contain it."""
        return str(PurePosixPath(self.target) / path.relative_to(self.source)) if self._holds(path) else ""

    def host_path(self, place: str) -> Path | None:
        """Path on this machine of ``place`` in the container, None if this mount does not contain it."""
        inside = PurePosixPath(place)
        return self.source / inside.relative_to(self.target) if inside.is_relative_to(self.target) else None

    def _holds(self, path: Path) -> bool:
        return path.is_relative_to(self.source)


@dataclass(frozen=True, kw_only=True)
class ContainerSettings:
    """Settings of a server's container."""

    daemon: Daemon
    image: str
    served_from: str = "/models"  # path of the model repository in the container
    same_path_mounts: tuple[Path, ...] = ()  # at the same path as here: environments elsewhere, and libraries
    backends: Mapping[str, Path] = field(default_factory=dict)  # additional ones, by name
    environment: Mapping[str, str] = field(default_factory=dict)  # in addition to the default variables
    arguments: tuple[str, ...] = ()  # additional ones for tritonserver
    port: int | None = None  # on 127.0.0.1; None lets the daemon select a free one
    gpu: bool = False
    pull: bool = False  # the image, if the daemon does not have it
    shm_bytes: int = 256 << 20  # of /dev/shm
    memory_bytes: int | None = None  # including /tmp; None sets no limit
    tmp_bytes: int = 4 << 30  # of /tmp, where the server unpacks environments
    start_seconds: float = 60.0  # limit for the server's first response
    keep: bool = False  # later runs do not remove the container as stale


def container_options(settings: ContainerSettings, mounts: tuple[Mount, ...], http_port: int) -> dict[str, Any]:
    """Keyword arguments for ``containers.create`` of the Docker SDK.

    The root file system is read-only. ``/tmp`` is a tmpfs without ``noexec``, since the server unpacks environments
    there and loads their libraries. All capabilities are dropped, and none can be gained.
    """
    import docker

    options: dict[str, Any] = {
        "labels": {LABEL: this_owner()} | ({KEPT_LABEL: "yes"} if settings.keep else {}),
        "read_only": True,
        "tmpfs": {"/tmp": f"exec,mode=1777,size={settings.tmp_bytes}"},  # noqa: S108
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges"],
        "user": _user(),
        "init": settings.daemon.name == "docker",  # podman's init is a separate package, which is often missing
        "pids_limit": _MOST_PROCESSES,
        "ulimits": [docker.types.Ulimit(name=name, soft=most, hard=most) for name, most in _limits(settings).items()],
        "shm_size": settings.shm_bytes,
        "ports": {f"{http_port}/tcp": ("127.0.0.1", settings.port)},
        "environment": {"HOME": HOME, **settings.environment},
        "mounts": [docker.types.Mount(m.target, str(m.source), type="bind", read_only=True) for m in mounts],
    }
    if settings.memory_bytes is not None:
        # With swap equal to memory no swap is available: a model that is too large is killed instead of slowed down.
        options |= {"mem_limit": settings.memory_bytes, "memswap_limit": settings.memory_bytes}
    if settings.gpu:
        options |= _gpu(settings.daemon.name)
    return options


def _limits(settings: ContainerSettings) -> dict[str, int]:
    """No core dumps, and no limit above this process's own, which a daemon in a container cannot exceed.

    Without an explicit value podman requests the highest possible number of processes.
    """
    limits = {"nofile": _at_most(_MOST_FILES, resource.RLIMIT_NOFILE), "core": 0}
    if settings.daemon.name == "podman":
        limits["nproc"] = _at_most(_MOST_PROCESSES, resource.RLIMIT_NPROC)
    return limits


def _at_most(most: int, kind: int) -> int:
    own = resource.getrlimit(kind)[1]
    return most if own == resource.RLIM_INFINITY else min(most, own)


def _user() -> str:
    """User and group of the container: the caller's, which can read the models, or nobody instead of root."""
    return f"{os.getuid()}:{os.getgid()}" if os.getuid() else f"{_NOBODY}:{_NOBODY}"


def _gpu(daemon: str) -> dict[str, Any]:
    import docker

    if daemon == "podman":  # it ignores Docker's device request and starts the container without a GPU
        return {"devices": ["nvidia.com/gpu=all"]}
    return {"device_requests": [docker.types.DeviceRequest(count=-1, capabilities=[["gpu"]])]}
