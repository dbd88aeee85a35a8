"""Decides where models run: on a real server, whenever one can be started; or locally."""

from __future__ import annotations

from typing import TYPE_CHECKING

from envpack.repository import backends_folder, examine_readable, model_folders
from envpack.server import Runtime, ServerSpec, choose_runtime, find_server
from envpack.settings import Project
from envpack.support.errors import ServerError
from envpack.support.folders import cache_folder, real_path
from envpack.support.progress import NoProgress, Progress
from envpack.testing.model import Models

if TYPE_CHECKING:
    from envpack.store import SharedStore

# The server binds a free port.
GRPC_ARGUMENTS = ("--allow-grpc=true", "--grpc-address=127.0.0.1", "--grpc-port=0")
LOCALLY = "locally, without a server"


def find_runtime(project: Project) -> Runtime | None:
    """The server that can be started: the one that is named or installed, else a container whose image is here."""
    said = project.of()
    try:
        find_server(said.server)
        is_installed = True
    except ServerError:
        if said.server is not None:
            raise
        is_installed = False
    models = tuple(filter(None, (examine_readable(folder)[0] for folder in model_folders(project.repository))))
    # A server waits a second for each completion.
    completion = () if any(model.may_complete for model in models) else ("--disable-auto-complete-config",)
    own = said.only("server", "image", "triton").saying(
        runtime="process" if is_installed else "auto",
        server_arg=("--log-verbose=0", *(GRPC_ARGUMENTS if is_installed else ()), *completion),
    )
    spec = ServerSpec(
        own,
        backends=backends_folder(project),
        variables={"PYTHONUNBUFFERED": "1"},  # what a model prints belongs to the request that it has
        mounts=(real_path(project.repository), cache_folder("environments")),
    )
    try:
        return choose_runtime(spec, project.repository, models)
    except ServerError:
        if is_installed:
            raise
        return None  # there is no daemon either, or it has no image


def where(runtime: Runtime | None) -> str:
    """Where models run, in words."""
    if runtime is None:
        return LOCALLY
    release = f"Triton {runtime.release}" if runtime.release else "a Triton server"
    return f"on {release}, {f'a container of {runtime.image}' if runtime.image else 'a process of this machine'}"


def open_models(
    project: Project,
    runtime: Runtime | None,
    *,
    timeout: float,
    progress: Progress | None = None,
    store: SharedStore | None = None,
) -> Models:
    """The models of a repository, on a server or, without a runtime, locally; limits in seconds."""
    if runtime is None:
        from envpack.testing.local_models import LocalModels

        return LocalModels.of(project, timeout)
    from envpack.testing.served_models import ServedModels

    return ServedModels(runtime, project, timeout=timeout, progress=progress or NoProgress(), store=store)
