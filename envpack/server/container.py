"""Runs a server in a least-privilege container: its privileges, mounts and limits."""

from __future__ import annotations

import contextlib
import os
import re
import resource
import tempfile
import threading
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from envpack.inspection.facts import Host, image_host
from envpack.server.container_start import entrypoint_before, image_missing, pull_errors, start_errors, start_failed
from envpack.server.daemon import ContainerShell, Daemon, daemon_errors
from envpack.server.interface import StopResult
from envpack.server.kserve import Client
from envpack.server.launch import STOP_SECONDS, server_command, write_user_site_probe
from envpack.server.log import excerpt
from envpack.server.procfs import ContainerProcfs
from envpack.server.stale_runs import (
    KEPT_LABEL,
    LABEL,
    remove_stale_containers,
    remove_stale_homes,
    temporary_home,
    this_owner,
)
from envpack.settings.releases import Release, all_releases
from envpack.support.folders import real_path
from envpack.support.links_and_modes import protect

if TYPE_CHECKING:
    from docker.models.containers import Container


HOME = "/tmp"  # noqa: S108 - a tmpfs in the container
_NOBODY = 65534
_MOST_PROCESSES = 4096  # threads count too, and a BLAS starts one per core in every model
_MOST_FILES = 65536
_HOME = re.compile(r"(/root|/home/[^/]+)/.*")


@dataclass(frozen=True)
class Mount:
    """A file or folder of this machine that is mounted read-only in the container."""

    source: Path  # with symbolic links resolved
    target: str

    def server_path(self, path: Path) -> str:
        inside = path.is_relative_to(self.source)
        return str(PurePosixPath(self.target) / path.relative_to(self.source)) if inside else ""

    def host_path(self, place: str) -> Path | None:
        inside = PurePosixPath(place)
        return self.source / inside.relative_to(self.target) if inside.is_relative_to(self.target) else None


def open_homes(mounts: tuple[Mount, ...], folder: Path) -> tuple[Mount, ...]:
    """Homes in place of the image's that have a mount below them: only their owners may enter the image's."""
    homes = set()
    for mount in mounts:
        home = _HOME.match(os.path.normpath(mount.target))
        if home:
            homes.add(home[1])
            place = folder / home[0][1:]
            if mount.source.is_dir():
                place.mkdir(parents=True, exist_ok=True)
            else:
                place.parent.mkdir(parents=True, exist_ok=True)
                place.touch()
    if homes:
        protect(folder)
    return tuple(Mount(folder / home[1:], home) for home in sorted(homes))


def container_options(runtime: ContainerRuntime, mounts: tuple[Mount, ...], http_port: int) -> dict[str, Any]:
    """Keyword arguments for ``containers.create`` of the Docker SDK.

    The root file system is read-only. ``/tmp`` is a tmpfs without ``noexec``, since the server unpacks environments
    there and loads their libraries. All capabilities are dropped, and none can be gained.
    """
    import docker

    options: dict[str, Any] = {
        "labels": {LABEL: this_owner()} | ({KEPT_LABEL: "yes"} if runtime.keep else {}),
        "read_only": True,
        "tmpfs": {"/tmp": f"exec,mode=1777,size={runtime.tmp_bytes}"},  # noqa: S108
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges"],
        "user": _user(runtime.daemon),
        "init": runtime.daemon.name == "docker",  # podman's init is a separate package, which is often missing
        "pids_limit": _MOST_PROCESSES,
        "ulimits": [docker.types.Ulimit(name=name, soft=most, hard=most) for name, most in _limits(runtime).items()],
        "shm_size": runtime.shm_bytes,
        "ports": {f"{http_port}/tcp": ("127.0.0.1", runtime.port)},
        "environment": {"HOME": HOME, **runtime.environment},
        "mounts": [docker.types.Mount(m.target, str(m.source), type="bind", read_only=True) for m in mounts],
    }
    if runtime.memory_bytes is not None:
        # With swap equal to memory no swap is available: a model that is too large is killed instead of slowed down.
        options |= {"mem_limit": runtime.memory_bytes, "memswap_limit": runtime.memory_bytes}
    if runtime.gpu:
        options |= _gpu(runtime.daemon.name)
    return options


def _limits(runtime: ContainerRuntime) -> dict[str, int]:
    """No core dumps, and no limit above our own; without a number, podman requests the highest of processes."""
    limits = {"nofile": _at_most(_MOST_FILES, resource.RLIMIT_NOFILE), "core": 0}
    if runtime.daemon.name == "podman":
        limits["nproc"] = _at_most(_MOST_PROCESSES, resource.RLIMIT_NPROC)
    return limits


def _at_most(most: int, kind: int) -> int:
    own = resource.getrlimit(kind)[1]
    return most if own == resource.RLIM_INFINITY else min(most, own)


def _user(daemon: Daemon) -> str:
    """User and group of the container: the caller, who can read the models; nobody if the caller is root."""
    if daemon.rootless:  # it maps root to the caller, and the caller's id to another user
        return "0:0"
    return f"{os.getuid()}:{os.getgid()}" if os.getuid() else f"{_NOBODY}:{_NOBODY}"


def _gpu(daemon: str) -> dict[str, Any]:
    import docker

    if daemon == "podman":  # it ignores Docker's device request and starts the container without a GPU
        return {"devices": ["nvidia.com/gpu=all"]}
    return {"device_requests": [docker.types.DeviceRequest(count=-1, capabilities=[["gpu"]])]}


_HTTP_PORT = 8000
_POLL_SECONDS = 0.05
_SHARED_MEMORY = "/dev/shm"  # noqa: S108 - where the kernel keeps POSIX shared memory
_BACKENDS = "/opt/tritonserver/backends"
_EXTRA_REPOSITORY = "/envpack/models"
_RELEASE_IN_TAG = re.compile(r":(\d\d\.\d\d)\b")


def without_mounts(names: Sequence[str], mounts: Sequence[Mount]) -> tuple[str, ...]:
    """Names in the folder of shared memory that are not those of mounts there."""
    inside = (PurePosixPath(mount.target) for mount in mounts)
    mounted = {
        place.relative_to(_SHARED_MEMORY).parts[0] for place in inside if PurePosixPath(_SHARED_MEMORY) in place.parents
    }
    return tuple(name for name in names if name not in mounted)


class ContainerServer(ContainerProcfs):
    """A server in a container; created by `ContainerRuntime.start`."""

    poll_seconds = 0.1

    def __init__(self, container: Container, url: str, mounts: Sequence[Mount], daemon: str) -> None:
        self._container = container
        self._daemon = daemon
        self._mounts = mounts
        self._shell = ContainerShell(container)
        super().__init__(self._shell.run)
        self._stopped: StopResult | None = None
        self.kept = False
        self._written = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - it lasts as long as this object
        weakref.finalize(self, self._written.close)
        self._reader = threading.Thread(target=self._read_log, name="container log", daemon=True)
        self._reader.start()
        self.url = url

    @property
    def container(self) -> str:
        return str(self._container.name)

    def log(self, since: int = 0, until: int | None = None) -> str:
        return excerpt(self._written.fileno(), since, until)

    def log_size(self) -> int:
        return os.fstat(self._written.fileno()).st_size

    def ended(self) -> bool:
        return not self._state().get("Running", False)

    def written_files(self, pid: int) -> tuple[str, ...]:  # noqa: ARG002 - it has the models read only
        return ()

    def shared_memory(self) -> tuple[str, ...]:
        return without_mounts(self.list_folder(_SHARED_MEMORY), self._mounts)

    def server_path(self, path: Path) -> str:
        real = real_path(path)
        places = (mount.server_path(real) for mount in self._mounts)
        return next((place for place in places if place), str(path))

    def host_path(self, place: str) -> Path | None:
        files = (mount.host_path(place) for mount in self._mounts)
        return next((file for file in files if file), None)

    def keep(self) -> str:
        self.kept = True
        self._shell.close()
        return f"{self.url}; stop it with: {self._daemon} rm --force {self.container}"

    def stop(self, *, force: bool = False) -> StopResult:
        if self._stopped is None:
            started = time.monotonic()
            forced = self._end(force=force)
            self._shell.close()
            exit_code = int(self._state().get("ExitCode", 0))
            self._reader.join(5)
            self._stopped = StopResult(exit_code, forced, (), time.monotonic() - started)
        return self._stopped

    def _end(self, *, force: bool) -> bool:
        """Stop the container, then kill it; returns whether it was killed."""
        with daemon_errors():
            if self.ended():
                return False
            if force:
                self._container.kill()
                self._container.wait(timeout=STOP_SECONDS)
                return True
            started = time.monotonic()
            self._container.stop(timeout=STOP_SECONDS + 5)
            return time.monotonic() - started > STOP_SECONDS + 4

    def _state(self) -> Mapping[str, Any]:
        with daemon_errors():
            self._container.reload()
        state: Mapping[str, Any] = self._container.attrs["State"]
        return state

    def _read_log(self) -> None:
        # The daemon can end at any time; the next request to it reports that.
        with contextlib.suppress(Exception):
            for chunk in self._container.logs(stream=True, follow=True):
                self._written.write(chunk)


@dataclass(frozen=True, kw_only=True)
class ContainerRuntime:
    """Runs a server in a container; implements `envpack.server.interface.Runtime`."""

    default_stub = None
    instead_of = None
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

    @property
    def name(self) -> str:
        return self.daemon.name

    @property
    def release(self) -> str:
        tag = _RELEASE_IN_TAG.search(self.image)
        return tag[1] if tag and tag[1] in all_releases() else ""

    @property
    def host(self) -> Host:
        known: Release | None = all_releases().get(self.release)
        return image_host(known) if known else Host(f"the image {self.image}", "", "", "")

    def has_image(self) -> bool:
        return bool(self._known_image())

    def _known_image(self) -> str:
        """The image's name in the daemon, with ``localhost/`` for podman's own; ``""`` if the daemon lacks it."""
        import docker

        names = (self.image, f"localhost/{self.image}") if self.daemon.name == "podman" else (self.image,)
        with daemon_errors():
            for name in names:
                with contextlib.suppress(docker.errors.ImageNotFound):
                    self.daemon.client.images.get(name)
                    return name
        return ""

    @contextlib.contextmanager
    def start(self, repository: Path, extra_repository: Path | None = None) -> Iterator[ContainerServer]:
        with contextlib.closing(self.daemon.client):  # closes its connections; the next start opens new ones
            remove_stale_containers(self.daemon)
            remove_stale_homes()
            with temporary_home() as home:
                write_user_site_probe(home)
                more = (Mount(real_path(extra_repository), _EXTRA_REPOSITORY),) if extra_repository else ()
                mounts = (*self._mounts(repository), *more, Mount(home / ".local", f"{HOME}/.local"))
                mounts = (*open_homes(mounts, home / "homes"), *mounts)
                with self._running_container(mounts) as server:
                    yield server

    @contextlib.contextmanager
    def _running_container(self, mounts: tuple[Mount, ...]) -> Iterator[ContainerServer]:
        container = self._create(mounts)
        server = None
        try:
            with start_errors(container, self.image, self.port), daemon_errors():
                container.start()
                container.reload()
            server = ContainerServer(container, self._url(container), mounts, self.name)
            self._wait_until_live(server, container)
            yield server
        finally:
            if server is None or not server.kept:
                # A container that cannot be removed now is found by its label in the next run.
                with contextlib.suppress(Exception):
                    container.remove(force=True, v=True)

    def _mounts(self, repository: Path) -> tuple[Mount, ...]:
        return (
            Mount(real_path(repository), self.served_from),
            *(Mount(real_path(path), str(path)) for path in self.same_path_mounts),
            *(Mount(real_path(folder), f"{_BACKENDS}/{name}") for name, folder in self.backends.items()),
        )

    def _create(self, mounts: tuple[Mount, ...]) -> Container:
        # All addresses of the container; the port is published on 127.0.0.1 of this machine only.
        everywhere = "0.0.0.0"  # noqa: S104
        repositories = [mount.target for mount in mounts if mount.target in (self.served_from, _EXTRA_REPOSITORY)]
        command = server_command("tritonserver", repositories, _BACKENDS, everywhere, _HTTP_PORT, self.arguments)
        options = container_options(self, mounts, _HTTP_PORT)
        image = self._known_image() or self._pull()
        with daemon_errors():
            said = self.daemon.client.images.get(image).attrs.get("Config") or {}
            before = entrypoint_before(said.get("Entrypoint") or ())
            if before is not None:
                options["entrypoint"], command = [*before, command[0]], command[1:]
            return self.daemon.client.containers.create(image, command, **options)

    def _pull(self) -> str:
        if not self.pull:
            raise image_missing(self.image)
        with pull_errors(self.image), daemon_errors():
            self.daemon.client.images.pull(self.image)
        return self.image

    def _url(self, container: Container) -> str:
        ports = container.attrs["NetworkSettings"]["Ports"].get(f"{_HTTP_PORT}/tcp") or []
        if not ports:
            raise start_failed(container.logs().decode("utf-8", "replace"), self.image, container)
        return f"http://127.0.0.1:{ports[0]['HostPort']}"

    def _wait_until_live(self, server: ContainerServer, container: Container) -> None:
        client = Client(server.url, timeout=2)
        until = time.monotonic() + self.start_seconds
        while time.monotonic() < until and not server.ended():
            if client.live():
                return
            time.sleep(_POLL_SECONDS)
        server.stop(force=True)
        raise start_failed(server.log(), self.image, container)
