"""From models and options to tasks; what only this machine can make gets none."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from envpack.fleet.tasks import BuildOrder, LockOrder, StubOrder, Task, combined, task_key
from envpack.lock import LOCAL_CHANNEL, Lock, format_lock, read_lock
from envpack.repository import open_model
from envpack.settings import Project, ToolchainName
from envpack.store import SharedStore, lock_key, push_packages
from envpack.stub import STUB_NAME, Cell, target_from_interpreter
from envpack.support.errors import EnvironmentBuildError, StubError
from envpack.workflow import (
    BuildRequest,
    LockRequest,
    build_request,
    lock_request,
)


def build_tasks(project: Project, names: Sequence[str], store: SharedStore | None) -> tuple[Task, ...]:
    """The tasks whose results a build of these models places.

    Ensembles and environments that are taken over from a folder have none; with a store, nor have models that require
    files of this machine.
    """
    tasks = []
    for name in names:
        model = open_model(project.repository / name)
        if not model.is_ensemble:
            task = build_task(build_request(project, model), project.of().abi, store)
            tasks += [task] if task else []
    return combined(tasks)


def build_task(request: BuildRequest, abi: str, store: SharedStore | None) -> Task | None:
    """The task of one build, ``None`` if only this machine can carry it out."""
    source = request.source
    if not isinstance(source, LockRequest) or (store and _is_local(source)):
        return None
    lock = read_lock(source.lock_file)
    made = lock.environment_key(strip=request.strip) if lock else _lock_key(source)
    has_stub = (request.model.folder / STUB_NAME).exists()
    wanted = request.stub == "auto" and (request.backends or request.starts_warm or has_stub)
    stub = "always" if wanted else request.stub
    _share_packages(lock, store)
    return Task(
        key=task_key("environment", made, request.strip, request.release, stub, request.toolchain, _address(store)),
        names=(request.model.folder.name,),
        order=BuildOrder(
            requirements=source.requirements,
            target=source.target,
            channels=source.options.channels,
            sources=source.options.sources,
            python_preference=source.options.python_preference,
            lock=format_lock(lock) if lock else "",
            release=request.release.name,
            abi=abi,
            strip=request.strip,
            stub=stub,
            toolchain=request.toolchain,
        ),
        needs=(*_needs(source, lock), *(("compiler",) if stub == "always" else ())),
        store=_address(store),
    )


def lock_tasks(
    project: Project, names: Sequence[str], update: tuple[str, ...], store: SharedStore | None
) -> tuple[Task, ...]:
    """The tasks that resolve the packages of these models; arguments and errors as `envpack.workflow.lock_model`."""
    tasks = []
    for name in names:
        model = open_model(project.repository / name)
        if model.is_ensemble or project.of(name).from_prefix:
            continue
        request = lock_request(project, model)
        if store and _is_local(request):
            continue
        before = read_lock(request.lock_file)
        _share_packages(before, store)
        text = format_lock(before) if before else ""
        tasks.append(
            Task(
                key=task_key("lock", _lock_key(request), text, update, _address(store)),
                names=(name,),
                order=LockOrder(
                    requirements=request.requirements,
                    target=request.target,
                    channels=request.options.channels,
                    sources=request.options.sources,
                    python_preference=request.options.python_preference,
                    lock=text,
                    update=update,
                ),
                needs=_needs(request, None),
                store=_address(store),
            )
        )
    return combined(tasks)


def stub_tasks(
    cells: Sequence[Cell], *, abi: str, toolchain: ToolchainName, glibc: str, store: SharedStore | None
) -> tuple[Task, ...]:
    """The tasks that compile stubs; those for the Python of a folder are compiled on this machine."""
    return tuple(
        Task(
            key=task_key("stub", cell.identifier, cell.release, toolchain, glibc, _address(store)),
            names=(cell.identifier,),
            order=StubOrder(
                python=cell.target.minor,
                release=cell.release.name if cell.release else "",
                abi=abi,
                toolchain=toolchain,
                glibc=glibc,
            ),
            needs=("compiler", f"python {cell.target.minor}"),
            store=_address(store),
        )
        for cell in cells
        if _is_interpreter(cell)
    )


def _is_interpreter(cell: Cell) -> bool:
    """Whether a stub is for the interpreter that a minor version stands for."""
    try:
        return target_from_interpreter(cell.target.minor, fetch=False) == cell.target
    except (EnvironmentBuildError, StubError):
        return False


def _needs(request: LockRequest, lock: Lock | None) -> tuple[str, ...]:
    """What a worker must have: the platform; an interpreter if it becomes a package."""
    resolves_interpreter = lock is None and LOCAL_CHANNEL in request.options.channels
    python = (f"python {request.target.minor}",) if resolves_interpreter else ()
    return (f"platform {request.target.platform}", *python)


def _is_local(request: LockRequest) -> bool:
    """Whether requirements or channels name files of this machine."""
    asked = request.requirements
    lines = (*asked.pip, *asked.constraints, *asked.pip_options)
    channels = (channel for channel in request.options.channels if channel != LOCAL_CHANNEL)
    urls = [*(package.url for package in asked.locked_conda), *(package.url for package in asked.locked_pip)]
    return (
        bool(asked.projects)
        or any("file:" in line or "--find-links" in line for line in lines)
        or any(channel.startswith((".", "/", "~", "file:")) or Path(channel).is_dir() for channel in channels)
        or any(url.startswith("file:") for url in urls)
    )


def _share_packages(lock: Lock | None, store: SharedStore | None) -> None:
    """Put the packages into the store that a lock names by a path of this machine, if this machine may."""
    if lock and store and store.push:
        push_packages(store, lock)


def _lock_key(request: LockRequest) -> str:
    return lock_key(request.requirements, request.target, request.options)


def _address(store: SharedStore | None) -> str:
    return str(store.location) if store else ""
