"""Models of a repository, to run without a server: each in its environment, with the stub for its Python."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING

import envpack
from envpack.local.model_process import LogLine
from envpack.local.server import LocalServer
from envpack.local.starting import Instruments, ModelSource, Python
from envpack.repository.code import calls_itself, gives_configurations
from envpack.repository.config_rules import later_fields
from envpack.repository.folders import find_folder, looks_like_model, version_folders
from envpack.repository.model import Model, open_model
from envpack.repository.placement import backends_folder
from envpack.settings.project import Project, server_variables
from envpack.stub.inspection import inspect_stub
from envpack.support.errors import InputError, StubError, require_proc, require_programs
from envpack.support.placed_files import CONFIG_NAME, STUB_NAME
from envpack.support.platforms import this_machine
from envpack.support.progress import SILENT, Progress

if TYPE_CHECKING:
    from envpack.store.shared import SharedStore


def local_server(
    project: Project,
    *,
    log: Callable[[LogLine], None] = lambda line: None,  # noqa: ARG005
    progress: Progress = SILENT,
    store: SharedStore | None = None,
    output: int | IO[bytes] | None = None,
    instruments: Mapping[str, Instruments] | None = None,
    timeout: float = 120.0,
) -> LocalServer:
    """The models of a repository, to run without a server; an environment that is missing is built in the cache."""
    release = project.release
    variables = server_variables(project.of().env)

    def find(name: str) -> ModelSource | None:
        folder = find_folder(project.repository, name)
        if folder is None or not folder.is_dir() or not looks_like_model(folder):
            return None
        model = open_model(folder, foreign=True)
        if reason := needs_server(model):
            fix = "leave --local out, or let it be served: `envpack test`, `envpack dev`"
            raise InputError("needs-server", f"it {reason}, and only a server runs that", fix, str(model.folder))
        for what, fix in later_fields(model.config, release.name):
            raise InputError("bad-config", what, fix, str(model.folder / CONFIG_NAME))
        python = python_of(project, model, progress, store)
        own = (instruments or {}).get(model.name)
        return ModelSource(
            name=model.name,
            folder=model.folder,
            version=_served_version(model),
            config=model.config,
            python=python,
            variables={**variables, **(own.variables(python, progress) if own else {})},
        )

    number = int(release.name.replace(".", ""))
    return LocalServer(find, release=number, log=log, output=output, timeout=timeout)


def needs_server(model: Model) -> str:
    if model.is_foreign:
        return f"is a model of the backend {model.backend!r}"
    if model.is_ensemble:
        return "is an ensemble"
    if model.config.HasField("sequence_batching"):
        return "has sequence_batching"
    if model.config.HasField("model_repository_agents"):
        return "has model_repository_agents"
    return _needs_server_by_code(model)


def _needs_server_by_code(model: Model) -> str:
    if gives_configurations(model.folder):
        return "gives load_model() another configuration or files"
    if sum(max(group.count, 1) for group in model.config.instance_group) > 1 and calls_itself(model.folder):
        return "sends requests to itself, for which it has several instances"
    return ""


def python_of(project: Project, model: Model, progress: Progress, store: SharedStore | None = None) -> Python:
    """What a model runs on: the folder that it has, or else its environment in the cache, which is made if need be."""
    check_placed_environment(project, model, served_here=not project.of(model.name).served_from)
    placed = model.environment
    prefix = placed if placed is not None and _is_prefix(placed) else None
    if prefix is None:
        from envpack.workflow.build import environment_to_run  # with all that builds one

        prefix = environment_to_run(project, model, progress, store).prefix
    stub = _placed_stub(project, model, prefix if prefix != placed else None)
    if stub is None:
        from envpack.stub.recipe import Cell
        from envpack.stub.target import target_from_interpreter, target_from_prefix
        from envpack.workflow.shared import stub_for

        preference = project.of(model.name).settled().python_preference

        def find_headers(minor: str) -> Path:
            return target_from_interpreter(minor, preference=preference, progress=progress).include

        target = target_from_prefix(prefix, find_headers=find_headers)
        stub = stub_for(Cell(target), progress=progress, store=store).path
    require_proc()
    for place in (prefix, stub.parent):
        require_programs(place, "mount it without noexec, or move what is there to another one")
    return Python(stub, prefix)


def _is_prefix(folder: Path) -> bool:
    """Whether a folder has a Python, or the libraries of one; an archive has neither."""
    return (folder / "bin/python3").exists() or (folder / "lib").is_dir()


def check_placed_environment(project: Project, model: Model, *, served_here: bool = True) -> None:
    """Refuse an environment with which a server cannot run the model, or for which it waits forever."""
    if model.environment is None:
        return
    from envpack.inspection.stubs import refuse_placed_environment  # with all that reads environments

    refuse_placed_environment(model, model.environment, project.release, served_here=served_here)


def _served_version(model: Model) -> str:
    served = model.served_versions()
    if not served:
        known = sorted((version.name for version in version_folders(model.folder)), key=lambda name: (len(name), name))
        what = "no version folder is one of those that version_policy names"
        fix = f"known versions: {', '.join(known)}"
        raise InputError("model-without-code", what, fix, str(model.folder))
    return str(served[0])


def _placed_stub(project: Project, model: Model, made: Path | None) -> Path | None:
    """The stub that a server would take for a model, if it is of this version of envpack and can be run here."""
    for stub in (model.folder / STUB_NAME, backends_folder(project) / model.backend / STUB_NAME):
        if not os.access(stub, os.X_OK):
            continue
        try:
            facts = inspect_stub(stub)
        except StubError:
            continue  # the release's own
        if made is not None and not (made / "lib" / f"python{facts.python}").is_dir():
            continue
        if (facts.version, facts.machine) == (envpack.__version__, this_machine()):
            return stub
    return None
