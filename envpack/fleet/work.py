"""What a worker does: the ordinary steps of a build, a lock, a stub or a verification, which place nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from envpack import workflow
from envpack.fleet.tasks import Product, Task
from envpack.settings import ToolchainName
from envpack.store import SharedStore, open_store
from envpack.support.progress import Progress

if TYPE_CHECKING:
    from envpack.workflow import Made, Recipe, VerifyOptions


def carry_out(task: Task, progress: Progress) -> Product:
    """Do the work of a task, with the store that it names."""
    return task.work(progress=progress, store=open_store(task.store, push=True) if task.store else None)


def make_ingredients(recipe: Recipe, *, progress: Progress, store: SharedStore | None) -> Product:
    """As `envpack.workflow.make_ingredients`."""
    return _product(workflow.make_ingredients(recipe, progress, store))


def make_lock(recipe: Recipe, update: tuple[str, ...], *, progress: Progress, store: SharedStore | None) -> Product:
    """As `envpack.workflow.make_lock`."""
    return _product(workflow.make_lock(recipe, update, progress, store))


def make_stub(
    python: str,
    triton: str,
    *,
    abi: str,
    toolchain: ToolchainName,
    glibc: str,
    progress: Progress,
    store: SharedStore | None,
) -> Product:
    """As `envpack.workflow.make_stub`."""
    how = {"abi": abi, "glibc": glibc}
    return _product(workflow.make_stub(python, triton, toolchain=toolchain, progress=progress, store=store, **how))


def verify_models(
    place: str, models: tuple[str, ...], options: VerifyOptions, *, progress: Progress, store: SharedStore | None
) -> Product:
    """As `envpack.workflow.verify_there`."""
    del store
    return Product(made=True, verdict=workflow.verify_there(place, models, options, progress))


def _product(made: Made) -> Product:
    return Product(made=made.fresh, digests=made.digests, lock=made.lock)
