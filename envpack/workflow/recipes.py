"""The recipes of models, what a worker makes of them, and what it has for that; nothing is placed."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from envpack.conda.interpreters import available_interpreters
from envpack.repository.model import open_model
from envpack.settings.project import Project
from envpack.settings.releases import release_for_stub
from envpack.settings.table import ToolchainName
from envpack.store.shared import SharedStore
from envpack.stub.prebuilt import prebuilt_pythons
from envpack.stub.recipe import Cell
from envpack.stub.target import target_from_interpreter
from envpack.stub.toolchain import find_toolchain
from envpack.support.bounded_reading import sha256_of
from envpack.support.errors import EnvironmentBuildError, EnvpackError, StubError
from envpack.support.folders import cache_folder
from envpack.support.platforms import host_platform, this_machine
from envpack.support.progress import Progress
from envpack.workflow.build import made_ingredients
from envpack.workflow.lock import remembered_here, resolve_lock
from envpack.workflow.recipe import Made, Recipe, TakenOver
from envpack.workflow.requests import build_request, is_resolved, kept_environment, lock_request
from envpack.workflow.shared import push_packages, stub_for


def build_sources(project: Project, names: Sequence[str]) -> list[Recipe | TakenOver]:
    """What builds of these models make their environments from; those that get no environment have none."""
    models = (open_model(project.repository / name) for name in names)
    built = (model for model in models if not model.is_ensemble and not kept_environment(project, model))
    return [build_request(project, model).source for model in built]


def lock_recipes(project: Project, names: Sequence[str]) -> list[Recipe]:
    """What the locks of these models are made from; those whose environment is there already have none."""
    models = (open_model(project.repository / name) for name in names)
    return [lock_request(project, model)[0] for model in models if is_resolved(project, model)]


def look_ahead(project: Project, names: Sequence[str], store: SharedStore | None) -> None:
    """Ask a store at once for what builds will need of it; what is wrong is said when a model is built."""
    if store is None:
        return
    made, locks, environments = cache_folder("environments"), set(), set()
    for name in names:
        with contextlib.suppress(EnvpackError):
            for recipe in build_sources(project, [name]):
                if isinstance(recipe, Recipe):
                    lock = recipe.locked or remembered_here(recipe)
                    if not recipe.lock and (lock is None or store.push):
                        locks.add(recipe.lock_key)
                    if lock:
                        environments.add(lock.environment_key(strip=recipe.strip))
    store.look_up("lock", locks)
    store.look_up("environment", (key for key in environments if store.push or not (made / key).exists()))


def share_packages(recipe: Recipe, store: SharedStore | None) -> None:
    """Put the packages into the store that a lock names by a path of this machine, if this machine may."""
    if recipe.locked and store and store.push:
        push_packages(store, recipe.locked)


def make_ingredients(recipe: Recipe, *, progress: Progress, store: SharedStore | None) -> Made:
    with made_ingredients(recipe, progress, store) as (environment, stub):
        digests = {"environment": environment.content}
        if stub is not None:
            digests["stub"] = sha256_of(stub)
        return Made(fresh=environment.fresh, digests=digests)


def make_lock(recipe: Recipe, update: tuple[str, ...], *, progress: Progress, store: SharedStore | None) -> Made:
    text = resolve_lock(recipe, update, progress, store).text
    digest = hashlib.sha256(text.encode()).hexdigest()
    return Made(fresh=text != recipe.lock, digests={"lock": digest}, lock=text)


def make_stub(
    python: str,
    triton: str,
    *,
    abi: str,
    toolchain: ToolchainName,
    glibc: str,
    progress: Progress,
    store: SharedStore | None,
) -> Made:
    """Compile the stub for a Python of this machine, for one release or, if that is ``""``, for all."""
    target = target_from_interpreter(python)
    releases = (release_for_stub(triton, abi=abi),) if triton else ()
    progress.begin(f"stub for Python {python}")
    stub = stub_for(Cell(target, releases, toolchain, glibc), progress=progress, store=store)
    progress.end("compiled" if stub.fresh else "up to date")
    return Made(fresh=stub.fresh, digests={"stub": sha256_of(stub.path)})


def is_of_interpreter(cell: Cell) -> bool:
    """Whether a stub is for the interpreter that a minor version stands for, not for that of a folder."""
    try:
        return target_from_interpreter(cell.target.minor, fetch=False) == cell.target
    except (EnvironmentBuildError, StubError):
        return False


@functools.cache
def abilities() -> tuple[str, ...]:
    """What this machine has: ``"platform linux-64"``, ``"python 3.10"``, ``"compiler"`` (or compiled stubs),
    ``"docker"``, ``"server"`` (of Triton, as a process or in a container), ``"gpu"``.

    >>> any(ability.startswith("platform ") for ability in abilities())
    True
    """
    from envpack.server.launch import find_server  # every build imports this module

    found = [f"platform {host_platform()}"]
    found += sorted({f"python {interpreter.minor}" for interpreter in available_interpreters() if interpreter.library})
    machine = this_machine()
    if prebuilt_pythons(machine) or _succeeds(lambda: find_toolchain("auto", machine=machine, glibc="")):
        found.append("compiler")
    has_containers = Path("/var/run/docker.sock").exists() or shutil.which("podman")
    if has_containers:
        found.append("docker")
    if has_containers or _succeeds(lambda: find_server(None)):
        found.append("server")
    if Path("/dev/nvidiactl").exists():
        found.append("gpu")
    return tuple(found)


def _succeeds(find: Callable[[], object]) -> bool:
    try:
        find()
    except EnvpackError:
        return False
    return True
