"""From models to tasks; what only this machine can make gets none."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from envpack.fleet.tasks import Task, combined, task_key
from envpack.fleet.work import make_ingredients, make_lock, make_stub
from envpack.lock import LOCAL_CHANNEL, Lock
from envpack.repository import open_model
from envpack.settings import Project, ToolchainName
from envpack.store import SharedStore, push_packages
from envpack.stub import Cell, target_from_interpreter
from envpack.support.errors import EnvironmentBuildError, StubError
from envpack.workflow import Recipe, build_request, lock_request


def build_tasks(project: Project, names: Sequence[str], store: SharedStore | None) -> tuple[Task, ...]:
    """The tasks whose results a build of these models places.

    Ensembles and environments that are taken over from a folder have none; with a store, nor have models that require
    files of this machine.
    """
    tasks = []
    for name in names:
        model = open_model(project.repository / name)
        if not model.is_ensemble:
            source = build_request(project, model).source
            if isinstance(source, Recipe) and not (store and source.files_here):
                tasks.append(build_task(source, store))
    return combined(tasks)


def build_task(recipe: Recipe, store: SharedStore | None) -> Task:
    """The task that makes what a recipe describes."""
    lock = recipe.locked
    _share_packages(lock, store)
    made = lock.environment_key(strip=recipe.strip) if lock else recipe.lock_key
    parts = recipe.strip, recipe.release, recipe.stub, recipe.toolchain, _address(store)
    return Task(
        key=task_key("environment", made, *parts),
        names=(recipe.name,),
        work=functools.partial(make_ingredients, recipe),
        needs=(*_needs(recipe, lock), *(("compiler",) if recipe.stub == "always" else ())),
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
        recipe, _ = lock_request(project, model)
        if store and recipe.files_here:
            continue
        _share_packages(recipe.locked, store)
        tasks.append(
            Task(
                key=task_key("lock", recipe.lock_key, recipe.lock, update, _address(store)),
                names=(name,),
                work=functools.partial(make_lock, recipe, update),
                needs=_needs(recipe, None),
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
            work=functools.partial(
                make_stub,
                cell.target.minor,
                cell.release.name if cell.release else "",
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


def _needs(recipe: Recipe, lock: Lock | None) -> tuple[str, ...]:
    """What a worker must have: the platform; an interpreter if it becomes a package."""
    resolves_interpreter = lock is None and LOCAL_CHANNEL in recipe.channels
    python = (f"python {recipe.target.python}",) if resolves_interpreter else ()
    return (f"platform {recipe.target.platform}", *python)


def _share_packages(lock: Lock | None, store: SharedStore | None) -> None:
    """Put the packages into the store that a lock names by a path of this machine, if this machine may."""
    if lock and store and store.push:
        push_packages(store, lock)


def _address(store: SharedStore | None) -> str:
    return str(store.location) if store else ""
