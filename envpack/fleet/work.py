"""What a worker does: the ordinary steps of a build, a lock, a stub or a verification, which place nothing."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

from envpack.fleet.tasks import Product, Task
from envpack.lock import format_lock
from envpack.releases import find_release
from envpack.settings import ToolchainName
from envpack.store import SharedStore, open_store, parse_location
from envpack.stub import target_from_interpreter
from envpack.support.errors import InputError
from envpack.support.progress import Progress
from envpack.workflow import Recipe, made_ingredients, resolve_lock, stub_for

if TYPE_CHECKING:
    from envpack.verification import VerifyOptions


def carry_out(task: Task, progress: Progress) -> Product:
    """Do the work of a task, with the store that it names."""
    return task.work(progress=progress, store=open_store(task.store, push=True) if task.store else None)


def make_ingredients(recipe: Recipe, *, progress: Progress, store: SharedStore | None) -> Product:
    """Make the environment of a recipe and, if the model needs one, its stub."""
    with made_ingredients(recipe, progress, store) as (environment, stub):
        digests = {"environment": environment.content}
        if stub is not None:
            digests["stub"] = hashlib.sha256(stub.read_bytes()).hexdigest()
        return Product(made=environment.fresh, digests=digests)


def make_lock(recipe: Recipe, update: tuple[str, ...], *, progress: Progress, store: SharedStore | None) -> Product:
    """Resolve the packages of a recipe, those to update anew."""
    text = format_lock(resolve_lock(recipe, update, progress, store))
    return Product(made=text != recipe.lock, digests={"lock": hashlib.sha256(text.encode()).hexdigest()}, lock=text)


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
    """Compile the stub for a Python of the worker, for one release or, if that is ``""``, for all."""
    target = target_from_interpreter(python)
    releases = (find_release(triton, abi=abi or None),) if triton else None
    progress.begin(f"stub for Python {python}")
    stub = stub_for(target, releases, toolchain=toolchain, glibc=glibc, progress=progress, store=store)
    progress.end("compiled" if stub.fresh else "up to date")
    return Product(made=stub.fresh, digests={"stub": hashlib.sha256(stub.path.read_bytes()).hexdigest()})


def verify_models(
    place: str, models: tuple[str, ...], options: VerifyOptions, *, progress: Progress, store: SharedStore | None
) -> Product:
    """Verify models of a repository that the worker's machine has too, or of a published one."""
    from envpack.verification import verify, verify_published

    del store
    if "://" in place:
        verdict = verify_published(parse_location(place), models, options=options, progress=progress)
        return Product(made=True, verdict=verdict)
    repository = Path(place)
    absent = [name for name in models if not (repository / name).is_dir()]
    if absent:
        raise InputError(
            f"the worker's machine has no model {absent[0]} there",
            kind="repository-not-shared",
            where=place,
            hint="publish the repository and verify its address, or keep it on a file system that all workers mount",
        )
    return Product(made=True, verdict=verify(repository, models, options=options, progress=progress))
