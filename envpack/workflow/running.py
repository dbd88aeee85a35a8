"""Models of a repository, to run without a server: each in its environment, with the stub for its Python."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO

from envpack.local import LocalServer, LogLine, ModelSource, Python
from envpack.project import Project
from envpack.repository import Model, environment_of, looks_like_model, open_model, version_folders
from envpack.store import SharedStore
from envpack.stub import target_from_prefix
from envpack.support.progress import NoProgress, Progress
from envpack.workflow.build import environment_for
from envpack.workflow.requests import BuildOptions, build_request, release_for
from envpack.workflow.stubs import stub_for


def local_server(
    project: Project,
    options: BuildOptions | None = None,
    *,
    log: Callable[[LogLine], None] = lambda line: None,  # noqa: ARG005
    progress: Progress | None = None,
    store: SharedStore | None = None,
    variables: Mapping[str, str] | None = None,
    output: int | IO[bytes] | None = None,
) -> LocalServer:
    """The models of a repository, to run without a server. A model runs in the environment that it has, or else in one
    that is built for it in the cache; the repository is not changed.

    Args:
        project: the model repository and its settings.
        options: what the caller says of environments.
        log: takes lines of the models' logs; any thread.
        progress: receives each step.
        store: a store that machines share, as `project_store` opens it.
        variables: variables that models get beside those of this process.
        output: where standard output and error of models go; None for those of this process.

    Raises:
        UsageError: an unknown Python version or release.

    """
    options = options or BuildOptions()
    release = release_for(project, options.resolve)

    def find(name: str) -> ModelSource | Model | None:
        folder = project.repository / name
        if not folder.is_dir() or not looks_like_model(folder):
            return None
        model = open_model(folder)
        if model.is_ensemble:
            return model
        versions = sorted(version_folders(folder), key=lambda version: int(version.name))
        python = python_of(project, model, options, progress or NoProgress(), store)
        return ModelSource(
            name=model.name, folder=model.folder, version=versions[-1].name, config=model.config, python=python
        )

    number = int(release.name.replace(".", ""))
    return LocalServer(find, release=number, log=log, variables=variables, output=output)


def python_of(
    project: Project, model: Model, options: BuildOptions, progress: Progress, store: SharedStore | None = None
) -> Python:
    """What a model runs on: the folder that it has, or else its environment in the cache, which is made if need be.

    Raises:
        EnvpackError: what `build_model` raises.

    """
    placed = environment_of(model)
    prefix = placed if placed is not None and _is_prefix(placed) else None
    if prefix is None:
        prefix = environment_for(build_request(project, model, options), progress, store).prefix
    stub = stub_for(target_from_prefix(prefix), None, progress=progress, store=store)
    return Python(stub.path, prefix)


def _is_prefix(folder: Path) -> bool:
    return (folder / "bin" / "python3").exists() or (folder / "lib").is_dir()
