"""Chooses the runtime of a server: a container or a process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path

from envpack.repository import ONE_AT_A_TIME, STUB_NAME, Model, environment_of, unpacking_backends
from envpack.server.container import ContainerRuntime
from envpack.server.daemon import Daemon, find_daemon
from envpack.server.interface import Runtime
from envpack.server.launch import find_server, is_other_backend
from envpack.server.process import ProcessRuntime
from envpack.settings import DEFAULT_RELEASE, RuntimeName, find_release
from envpack.support.errors import ServerError

_GIB = 1 << 30
# Upper bound of an environment's unpacked size, as a multiple of its archive's. Each backend that uses the environment
# unpacks its own copy.
_UNPACKED = 8


@dataclass(frozen=True, kw_only=True)
class RuntimeOptions:
    """Where and how to run the server.

    Attributes:
        runtime: ``"docker"`` (also podman, through Docker's API), ``"process"``, or ``"auto"``: a container if a daemon
            is running and has the image, otherwise a process.
        server: process only: a ``tritonserver`` program or installation; None searches for one, see `find_server`.
        image: container only: name of the image; ``""`` is the official image of ``release``.
        release: name of the Triton release of the image; ``""`` is the default release.
        pull: container only: pull the image if the daemon does not have it.
        address: address of the repository in an object store, from which a process loads it; the folder that is
            verified is a copy then.
        gpu: give the server access to all GPUs.
        port: HTTP port on 127.0.0.1; None selects a free port.
        served_from: container only: path of the model repository in the container; ``""`` is ``/models``.
        extra_backends: folder with additional backend directories, for models that name one.
        mounts: container only: folders that the container gets at the same path, read only.
        environment: additional environment variables for the server.
        preload: libraries for the server's ``LD_PRELOAD``, see `find_preload`. A library of this machine is mounted at
            the same path in the container.
        arguments: additional arguments for tritonserver.
        shm_bytes: container only: size of ``/dev/shm`` in bytes.
        memory_bytes: container only: memory limit in bytes, including ``/tmp``; None sets no limit.
        keep: leave the server running after verification.
        utilities: process only: file in place of the backend's ``triton_python_backend_utils.py``.
    """

    runtime: RuntimeName = "auto"
    _: KW_ONLY
    server: Path | None = None
    image: str = ""
    release: str = ""
    pull: bool = False
    address: str = ""
    gpu: bool = False
    port: int | None = None
    served_from: str = ""
    extra_backends: Path | None = None
    mounts: tuple[Path, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    preload: tuple[Path, ...] = ()
    arguments: tuple[str, ...] = ()
    shm_bytes: int = 256 << 20
    memory_bytes: int | None = None
    keep: bool = False
    utilities: Path | None = None

    def image_name(self) -> str:
        """Name of the image: the given one, or the official image of the release."""
        return self.image or find_release(self.release or DEFAULT_RELEASE).image

    def all_arguments(self, models: tuple[Model, ...]) -> tuple[str, ...]:
        """Arguments for tritonserver.

        Models load one at a time if several backends would unpack environments at the same time.
        """
        careful = (ONE_AT_A_TIME,) if len(unpacking_backends(models)) > 1 else ()
        return (*careful, *self.arguments)

    def all_variables(self) -> dict[str, str]:
        """Environment variables for the server."""
        preload = ":".join(map(str, self.preload))
        return {**self.environment, **({"LD_PRELOAD": preload} if preload else {})}


def choose_runtime(options: RuntimeOptions, repository: Path, models: tuple[Model, ...]) -> Runtime:
    """Choose a runtime for models of a repository."""
    if options.runtime == "process" or (options.runtime == "auto" and options.server is not None):
        return _process(options, models)
    if options.runtime == "docker":
        return _container(options, find_daemon(), repository, models)
    try:
        daemon = find_daemon()
    except ServerError:
        return _process(options, models)
    container = _container(options, daemon, repository, models)
    if options.image or options.pull or container.has_image():
        return container
    return _process(options, models, instead_of=container.image)


def _process(options: RuntimeOptions, models: tuple[Model, ...], *, instead_of: str = "") -> ProcessRuntime:
    return ProcessRuntime(
        find_server(options.server),
        port=options.port,
        environment=options.all_variables(),
        extra_backends=options.extra_backends,
        arguments=options.all_arguments(models),
        start_seconds=60.0 if options.gpu else 10.0,
        instead_of=instead_of,
        address=options.address,
        utilities=options.utilities,
    )


def _container(
    options: RuntimeOptions, daemon: Daemon, repository: Path, models: tuple[Model, ...]
) -> ContainerRuntime:
    named = (place for model in models if (place := environment_of(model)) and place.exists())
    environments = list(dict.fromkeys(named))  # models can share one
    packed = sum(place.stat().st_size for place in environments if place.is_file())
    return ContainerRuntime(
        daemon=daemon,
        image=options.image_name(),
        served_from=options.served_from or "/models",
        same_path_mounts=(
            *(place for place in environments if not place.is_relative_to(repository)),
            *(library for library in options.preload if library.exists()),
            *options.mounts,
        ),
        backends=_backend_folders(options.extra_backends),
        environment=options.all_variables(),
        arguments=options.all_arguments(models),
        port=options.port,
        gpu=options.gpu,
        pull=options.pull,
        shm_bytes=options.shm_bytes,
        memory_bytes=options.memory_bytes,
        tmp_bytes=_GIB + _UNPACKED * packed,
        start_seconds=300.0 if options.gpu else 60.0,
        keep=options.keep,
    )


def _backend_folders(extra: Path | None) -> dict[str, Path]:
    folders = sorted(extra.iterdir()) if extra is not None and extra.is_dir() else []
    usable = (folder for folder in folders if (folder / STUB_NAME).is_file() or is_other_backend(folder))
    return {folder.name: folder for folder in usable if folder.name != "python"}
