"""Probes of what verification can run a server in: an installed Triton server, a container daemon."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from envpack.containers import Daemon, daemon_errors, find_daemon
from envpack.doctor.observation import Observation
from envpack.project import Project
from envpack.releases import DEFAULT_RELEASE, find_release
from envpack.server import find_server
from envpack.support.errors import ServerError

if TYPE_CHECKING:
    import docker


def server(project: Project) -> Iterator[Observation]:  # noqa: ARG001 - all probes are called alike
    """The server that `envpack verify --runtime process` starts."""
    try:
        found = find_server()
    except ServerError as error:
        yield Observation("tritonserver", "warn", f"{error.message}; servers can run in containers", error.hint)
        return
    release = f"Triton {found.release}" if found.release else "unknown release"
    yield Observation("tritonserver", "ok", f"{release}, {found.executable}")


_CDI_FOLDERS = (Path("/etc/cdi"), Path("/var/run/cdi"))


def containers(project: Project) -> Iterator[Observation]:
    """The container daemon for `envpack verify` and `envpack layout --image`, its image and its GPUs."""
    try:
        daemon = find_daemon()
    except ServerError as error:
        what = f"{error.message}; servers run as processes"
        yield Observation("containers", "warn", what, error.hint)
        return
    with contextlib.closing(daemon.client), daemon_errors():
        yield from _of_daemon(daemon, find_release(project.triton or DEFAULT_RELEASE).image)


def _of_daemon(daemon: Daemon, image: str) -> Iterator[Observation]:
    version, info = daemon.client.version(), daemon.client.info()
    what = f"{daemon.name} {version.get('Version', '?')}, API {version.get('ApiVersion', '?')}, at {daemon.address}"
    yield Observation("containers", "ok", what)
    yield _image(daemon, image)
    yield _gpus(daemon, info)


def _image(daemon: Daemon, name: str) -> Observation:
    if _has_image(daemon.client, name):
        return Observation("image", "ok", name)
    return Observation(
        "image", "warn", f"{name} is not present", f"run {daemon.name} pull {name}, or verify with --pull"
    )


def _has_image(client: docker.DockerClient, name: str) -> bool:
    import docker

    try:
        client.images.get(name)
    except docker.errors.ImageNotFound:
        return False
    return True


def _gpus(daemon: Daemon, info: dict[str, Any]) -> Observation:
    """Whether containers have access to GPUs. Podman ignores Docker's GPU request without an error."""
    runtimes = sorted(info.get("Runtimes") or {})
    devices = [device.get("ID", "") for device in info.get("DiscoveredDevices") or [] if isinstance(device, dict)]
    specified = [file.name for folder in _CDI_FOLDERS if folder.is_dir() for file in sorted(folder.iterdir())]
    if "nvidia" in runtimes:
        return Observation("GPUs in containers", "ok", f"runtime nvidia, of {', '.join(runtimes)}")
    nvidia = [name for name in (*devices, *specified) if "nvidia" in name]
    if nvidia:
        return Observation("GPUs in containers", "ok", f"by CDI: {', '.join(nvidia)}")
    what = f"{daemon.name} has no GPU access: runtimes {', '.join(runtimes) or 'unknown'}, no NVIDIA CDI device"
    fix = "install nvidia-container-toolkit, run nvidia-ctk runtime configure --runtime=docker, restart Docker"
    return Observation("GPUs in containers", "warn", what, fix)
