"""Chooses the runtime of a server: a container or a process."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from envpack.repository.model import Model
from envpack.repository.placement import ONE_AT_A_TIME, unpacking_backends
from envpack.server.container import HOME, ContainerRuntime
from envpack.server.daemon import Daemon, find_daemon
from envpack.server.interface import Runtime
from envpack.server.launch import find_preload, find_server, is_other_backend
from envpack.server.process import ProcessRuntime
from envpack.settings.project import server_variables
from envpack.settings.releases import find_release
from envpack.settings.table import DEFAULT_RELEASE, Settings
from envpack.support.errors import Finding, ServerError, UsageError, caution
from envpack.support.placed_files import STUB_NAME

OF_EVERY_SERVER = ("gpu", "shm_size", "memory", "env", "preload")  # settings that count for whatever it serves
_GIB = 1 << 30
# What a repository cannot replace or contain in a container.
_OF_THE_SERVER = ("/opt/tritonserver/backends", "/usr/bin", "/usr/lib", "/bin", "/sbin", "/lib", "/lib64", "/etc", HOME)
_OF_THE_KERNEL = ("/proc", "/sys", "/dev")
_LOAD_THREADS = "--model-load-thread-count"
# By which users of a machine that they share say which of its GPUs are theirs.
GPUS = "CUDA_VISIBLE_DEVICES"
_FEWEST_THREADS = 2
_OTHERS_DAEMON = ("docker-denied", "docker-remote")  # there is one, which this user cannot use from here
# Upper bound of an environment's unpacked size, as a multiple of its archive's. Each backend that uses the environment
# unpacks its own copy.
_UNPACKED = 8


@dataclass(frozen=True)
class ServerSpec:
    """How to run a server and verify models in it: what a user says, and what only the caller knows.

    Attributes:
        said: settings; those that are not said have their defaults.
        backends: folder with additional backend directories, for models that name one.
        variables: environment variables for the server; those of the settings count more.
        mounts: container only: folders that the container gets at the same path, read only.
        utilities: process only: file in place of the backend's ``triton_python_backend_utils.py``.
        together: load all models at the same time after each has been verified alone.
        samples: a repository with samples for published models, which come without.
    """

    said: Settings = field(default_factory=Settings)
    _: KW_ONLY
    backends: Path | None = None
    variables: Mapping[str, str] = field(default_factory=dict)
    mounts: tuple[Path, ...] = ()
    utilities: Path | None = None
    together: bool = True
    samples: Path | None = None

    @functools.cached_property
    def settings(self) -> Settings:
        """The settings with their defaults."""
        return self.said.settled()

    @functools.cached_property
    def preload(self) -> tuple[Path, ...]:
        """Libraries for the server's ``LD_PRELOAD``, see `find_preload`."""
        return tuple(map(find_preload, self.settings.preload))

    def saying(self, **said: Any) -> ServerSpec:
        """The same with other settings."""
        return dataclasses.replace(self, said=self.said.saying(**said))

    def all_arguments(self, models: tuple[Model, ...]) -> tuple[str, ...]:
        """Arguments for tritonserver: models load one at a time if several backends would unpack environments."""
        careful = (ONE_AT_A_TIME,) if len(unpacking_backends(models)) > 1 else ()
        return (*careful, *self.settings.server_arg)

    def load_threads(self, models: tuple[Model, ...]) -> int:
        """How many models a server loads at once, at least: so many loads can hang before all others wait for them.

        By default that is twice the number of processors (23.08), or 4 (24.10).
        """
        words = " ".join(self.all_arguments(models)).replace(f"{_LOAD_THREADS} ", f"{_LOAD_THREADS}=").split()
        named = [word for word in words if word.startswith(f"{_LOAD_THREADS}=")]
        number = named[-1].removeprefix(f"{_LOAD_THREADS}=") if named else ""
        return max(int(number), 1) if number.isdecimal() else _FEWEST_THREADS

    def all_variables(self) -> dict[str, str]:
        """Environment variables for the server; of the user's own it gets the choice of GPUs."""
        preload = ":".join(map(str, self.preload))
        own = {name: os.environ[name] for name in (GPUS, "CUDA_DEVICE_ORDER") if name in os.environ}
        return {
            **own,
            **self.variables,
            **server_variables(self.settings.env),
            **({"LD_PRELOAD": preload} if preload else {}),
        }


def choose_runtime(spec: ServerSpec, repository: Path, models: tuple[Model, ...]) -> Runtime:
    said = spec.settings
    if said.runtime == "process" or (said.runtime == "auto" and said.server is not None):
        return _process(spec, models)
    if said.runtime == "docker":
        return _container(spec, find_daemon(), repository, models)
    try:
        daemon = find_daemon()
    except ServerError as error:
        if said.image or said.pull:
            raise
        unusable = caution("runtime", Path(), error.message, error.hint) if error.kind in _OTHERS_DAEMON else None
        return _process(spec, models, instead_of=unusable)
    container = _container(spec, daemon, repository, models)
    if said.image or said.pull or container.has_image():
        return container
    absent = f"the daemon does not have the image {container.image}"
    fix = "--set pull=true verifies in the image; if this is meant, add --runtime process"
    return _process(spec, models, instead_of=caution("runtime", Path(), absent, fix))


def _process(spec: ServerSpec, models: tuple[Model, ...], *, instead_of: Finding | None = None) -> ProcessRuntime:
    said = spec.settings
    return ProcessRuntime(
        find_server(said.server),
        port=said.port,
        environment=spec.all_variables(),
        extra_backends=spec.backends,
        arguments=spec.all_arguments(models),
        start_seconds=60.0 if said.gpu else 10.0,
        instead_of=instead_of,
        utilities=spec.utilities,
    )


def served_from_container(said: Settings) -> str:
    """Path of the repository in the container; refused if it would hide what the server needs."""
    path = said.served_from or "/models"
    if any(PurePosixPath(own).is_relative_to(path) for own in _OF_THE_SERVER) or any(
        PurePosixPath(path).is_relative_to(kernel) for kernel in _OF_THE_KERNEL
    ):
        what = f"served_from = {path!r} would hide files of the server in its container"
        raise UsageError("usage", what, "name a folder of its own, such as /models")
    return path


def _container(spec: ServerSpec, daemon: Daemon, repository: Path, models: tuple[Model, ...]) -> ContainerRuntime:
    said = spec.settings
    named = (place for model in models if (place := model.environment) and place.exists())
    environments = list(dict.fromkeys(named))  # models can share one
    served_from = served_from_container(said)
    packed = sum(place.stat().st_size for place in environments if place.is_file())
    return ContainerRuntime(
        daemon=daemon,
        image=said.image or find_release(said.triton or DEFAULT_RELEASE).image,
        served_from=served_from,
        same_path_mounts=(
            # Below the repository's own mount, which is read only, the daemon can make no place for another.
            *(
                place
                for place in environments
                if not (place.is_relative_to(repository) or place.is_relative_to(served_from))
            ),
            *(library for library in spec.preload if library.exists()),
            *spec.mounts,
        ),
        backends=_backend_folders(spec.backends),
        environment=spec.all_variables(),
        arguments=spec.all_arguments(models),
        port=said.port,
        gpu=said.gpu,
        pull=said.pull,
        shm_bytes=said.shm_size,
        memory_bytes=said.memory,
        tmp_bytes=_GIB + _UNPACKED * packed,
        start_seconds=300.0 if said.gpu else 60.0,
        keep=said.keep,
    )


def _backend_folders(extra: Path | None) -> dict[str, Path]:
    folders = sorted(extra.iterdir()) if extra is not None and extra.is_dir() else []
    usable = (folder for folder in folders if (folder / STUB_NAME).is_file() or is_other_backend(folder))
    return {folder.name: folder for folder in usable if folder.name != "python"}
