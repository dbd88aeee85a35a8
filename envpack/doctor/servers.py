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
    """What `envpack verify --runtime process` boots."""
    try:
        found = find_server()
    except ServerError as error:
        yield Observation("tritonserver", "warn", f"{error.message}; a container can take its place", error.hint)
        return
    release = f"Triton {found.release}" if found.release else "of an unknown release"
    yield Observation("tritonserver", "ok", f"{release}, {found.executable}")


_CDI_FOLDERS = (Path("/etc/cdi"), Path("/var/run/cdi"))


def containers(project: Project) -> Iterator[Observation]:
    """The daemon that `envpack verify` and `envpack layout --image` use."""
    try:
        daemon = find_daemon()
    except ServerError as error:
        what = f"{error.message}; servers run as processes of this machine"
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
    return Observation("image", "warn", f"{name} is not there", f"{daemon.name} pull {name}, or --pull")


def _has_image(client: docker.DockerClient, name: str) -> bool:
    import docker

    try:
        client.images.get(name)
    except docker.errors.ImageNotFound:
        return False
    return True


def _gpus(daemon: Daemon, info: dict[str, Any]) -> Observation:
    """Whether containers could get GPUs. Podman starts them without any, and says nothing."""
    runtimes = sorted(info.get("Runtimes") or {})
    devices = [one.get("ID", "") for one in info.get("DiscoveredDevices") or [] if isinstance(one, dict)]
    specified = [file.name for folder in _CDI_FOLDERS if folder.is_dir() for file in sorted(folder.iterdir())]
    if "nvidia" in runtimes:
        return Observation("GPUs in containers", "ok", f"runtime nvidia, of {', '.join(runtimes)}")
    nvidia = [name for name in (*devices, *specified) if "nvidia" in name]
    if nvidia:
        return Observation("GPUs in containers", "ok", f"by CDI: {', '.join(nvidia)}")
    what = f"{daemon.name} has none to give: runtimes {', '.join(runtimes) or 'unknown'}, no CDI device of NVIDIA"
    fix = "for GPUs: install nvidia-container-toolkit, run nvidia-ctk runtime configure --runtime=docker, restart it"
    return Observation("GPUs in containers", "warn", what, fix)
