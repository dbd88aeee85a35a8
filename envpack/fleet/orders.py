"""From models to tasks; what only this machine can make gets none."""

from __future__ import annotations

import functools
import uuid
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from envpack.fleet.tasks import Task, combined, task_key
from envpack.settings.project import Project
from envpack.settings.table import Settings
from envpack.store.shared import SharedStore
from envpack.support.platforms import host_platform
from envpack.workflow.recipe import Recipe
from envpack.workflow.recipes import (
    build_sources,
    is_of_interpreter,
    lock_recipes,
    make_ingredients,
    make_lock,
    make_stub,
    share_packages,
)
from envpack.workflow.stubs import stub_store
from envpack.workflow.verify import models_to_verify, server_spec, verify_there

if TYPE_CHECKING:
    from envpack.workflow.stubs import Cell
    from envpack.workflow.verify import Trust


def build_tasks(project: Project, names: Sequence[str], store: SharedStore | None) -> tuple[Task, ...]:
    """Tasks for what builds of these models place; none for what is taken over, or made of files of this machine."""
    sources = build_sources(project, names)
    recipes = (source for source in sources if isinstance(source, Recipe) and not (store and source.files_here))
    return combined(build_task(recipe, store) for recipe in recipes)


def build_task(recipe: Recipe, store: SharedStore | None) -> Task:
    share_packages(recipe, store)
    parts = recipe.strip, recipe.release, recipe.stub, recipe.toolchain, _address(store)
    compiler = ("compiler",) if recipe.stub == "always" else ()
    return Task(
        key=task_key("environment", recipe.made_key, *parts),
        names=(recipe.name,),
        work=functools.partial(make_ingredients, recipe),
        needs=(*_needs(recipe, interpreter=recipe.resolves_interpreter), *compiler),
        store=_address(store),
    )


def lock_tasks(
    project: Project, names: Sequence[str], update: tuple[str, ...], store: SharedStore | None
) -> tuple[Task, ...]:
    """The tasks that resolve the packages of these models; see `envpack.workflow.lock.lock_model`."""
    tasks = []
    for recipe in lock_recipes(project, names):
        if store and recipe.files_here:
            continue
        share_packages(recipe, store)
        tasks.append(
            Task(
                key=task_key("lock", recipe.lock_key, recipe.lock, update, _address(store)),
                names=(recipe.name,),
                work=functools.partial(make_lock, recipe, update),
                needs=_needs(recipe, interpreter=recipe.has_local_channel),
                store=_address(store),
            )
        )
    return combined(tasks)


def stub_tasks(cells: Sequence[Cell], said: Settings) -> tuple[Task, ...]:
    """The tasks that compile stubs; those for the Python of a folder are compiled on this machine."""
    store = _address(stub_store(said))
    how = functools.partial(make_stub, abi=said.settled().abi)
    return tuple(
        Task(
            key=task_key("stub", cell.identifier, cell.release, cell.toolchain, cell.glibc, store),
            names=(cell.identifier,),
            work=functools.partial(
                how,
                cell.target.minor,
                cell.release.name if cell.release else "",
                toolchain=cell.toolchain,
                glibc=cell.glibc,
            ),
            needs=("compiler", f"python {cell.target.minor}"),
            store=store,
        )
        for cell in cells
        if is_of_interpreter(cell)
    )


def _needs(recipe: Recipe, *, interpreter: bool) -> tuple[str, ...]:
    """What a worker must have: the platform; an interpreter if it becomes a package."""
    python = (f"python {recipe.target.python}",) if interpreter else ()
    return (f"platform {recipe.target.platform}", *python)


def _address(store: SharedStore | None) -> str:
    return str(store.location) if store else ""


def verify_tasks(project: Project, place: str, names: Sequence[str], trust: Trust | None = None) -> tuple[Task, ...]:
    """The tasks that verify models of a folder or an address, as the settings say."""
    spec, size = server_spec(project, place if "://" in place else ""), project.of().group
    said = spec.settings
    models, unreadable = models_to_verify(place, names)

    def task(part: Sequence[str], *, on_gpu: bool) -> Task:
        return Task(
            # Without a key of its own, it could get the verdict of a caller who began before the models changed.
            key=f"envpack-verify-{uuid.uuid4().hex}",
            names=tuple(part),
            work=functools.partial(verify_there, place, tuple(part), spec.saying(gpu=on_gpu, port=None), trust),
            makes_files=False,
            needs=_server_needs(said, on_gpu=on_gpu),
        )

    groups = [
        (on_gpu, part)
        for on_gpu in (True, False)
        for part in _groups([name for name in models if (said.gpu or models[name]) == on_gpu], size)
    ]
    # The first server also reports the models that cannot be read.
    return tuple(
        task((*part, *unreadable) if number == 0 else part, on_gpu=on_gpu)
        for number, (on_gpu, part) in enumerate(groups)
    )


def _server_needs(said: Settings, *, on_gpu: bool) -> tuple[str, ...]:
    """What `envpack.server.choice.choose_runtime` needs on a worker."""
    has_image = said.runtime == "auto" and not said.server and bool(said.image or said.pull)
    server = "docker" if said.runtime == "docker" or has_image else "server"
    return (f"platform {host_platform()}", server, *(("gpu",) if on_gpu else ()))


def _groups(names: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    return (names[start : start + size] for start in range(0, len(names), size))
