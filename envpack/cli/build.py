"""`envpack lock` and `envpack build`: resolve the packages of models, and put execution environments beside them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from envpack.cli import options
from envpack.cli.console import Console, plain
from envpack.cli.each_model import EachModel

if TYPE_CHECKING:
    from envpack.fleet.tasks import Task
    from envpack.settings.project import Project
    from envpack.settings.table import Settings
    from envpack.workflow.build import BuiltModel
    from envpack.workflow.lock import KnownLocks, LockedModel
    from envpack.workflow.plan import ModelPlan


@click.command(cls=options.GroupedCommand)
@options.models
@click.option(
    "--update",
    multiple=True,
    metavar="NAME",
    help="Resolve this package anew; repeatable. Others stay as they are where they still fit.",
)
@options.settings("lock")
@options.repository
@options.with_console
def lock(
    models: tuple[str, ...], said: Settings, repository: Path, console: Console, *, update: tuple[str, ...]
) -> int:
    """Write envpack.lock into the folder of each MODEL, by default all: every package with its address and hash.

    `envpack build` then installs exactly these. A model that fails does not keep the others from being locked.
    """
    from envpack.settings.project import open_project
    from envpack.workflow.lock import lock_model
    from envpack.workflow.project import check_model, chosen_folders, project_store

    project = open_project(repository, said)
    names = chosen_folders(project, models)
    console.warned(*project.warnings)
    shared = project_store(project)
    each = EachModel(names, console)
    each.do(lambda name: check_model(project, name))  # what is wrong there is an error before any work

    def tasks(name: str) -> Sequence[Task]:
        from envpack.fleet.orders import lock_tasks

        return lock_tasks(project, [name], update, shared)

    done = each.on_cluster(project.of().on, tasks)
    resolved = {name: part.product.lock for part in done.done for name in part.task.names}

    known: KnownLocks = {}

    def lock_one(name: str) -> LockedModel:
        there = resolved.get(name, "")
        return lock_model(project, name, update=update, progress=console, store=shared, resolved=there, known=known)

    locked = each.do(lock_one)
    for model in locked:
        console.warned(*model.warnings)
        for change in model.changes:
            console.show(f"    {plain(change)}")
    if not (shared and shared.push):
        console.warned(*_local_packages(locked))
    if any(model.changed for model in locked):
        each.next_step("build", repository, models, said)
    return each.finish({"models": locked} | done.as_json(), "locked")


def _local_packages(locked: Sequence[LockedModel]) -> Iterator[str]:
    """What to know about locks that other machines cannot install, once for all that name the same packages."""
    models: dict[tuple[str, ...], list[str]] = {}
    for model in (model for model in locked if model.local):
        models.setdefault(model.local, []).append(model.name)
    for packages, names in models.items():
        subject = f"{', '.join(names)}: the {'lock names' if len(names) == 1 else 'locks name'}"
        yield (
            f"{subject} {', '.join(packages)} by a path of this machine; "
            "for other machines lock with --store URL --set push=true; "
            "or with --channel ADDRESS, see `envpack channel add-python --help`"
        )


@click.command(cls=options.GroupedCommand)
@options.models
@options.settings("build")
@options.repository
@click.option(
    "--recipe",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    metavar="FILE",
    help="Build what a Job's recipe says, into --store.",
)
@click.option("--dry-run", is_flag=True, help="Show what would change and why; change nothing.")
@options.with_console
def build(
    models: tuple[str, ...],
    said: Settings,
    repository: Path,
    recipe: Path | None,
    console: Console,
    *,
    dry_run: bool,
) -> int:
    """Build the execution environment of each MODEL, by default all, and put it beside the model.

    A model that fails does not keep the others from being built.
    """
    from envpack.settings.project import open_project
    from envpack.workflow.build import build_model
    from envpack.workflow.placement import unpacked_at_once
    from envpack.workflow.project import check_model, chosen_folders, project_store
    from envpack.workflow.recipes import look_ahead

    project = open_project(repository, said)
    if recipe is not None:
        if models or dry_run or not said.push or said.values().keys() != {"store", "push"}:
            raise click.UsageError("--recipe goes with --store and --set push=true, and with nothing else.")
        return _make(recipe, project, console)
    names, settled = chosen_folders(project, models), project.of()
    console.warned(*project.warnings)
    each = EachModel(names, console)
    if dry_run:
        return _dry_run(project, each, console)
    shared = project_store(project)
    if settled.store_only and not (settled.on and shared):
        raise click.UsageError("store_only is for --on and --store.")
    each.do(lambda name: check_model(project, name))  # what is wrong there is an error before any work

    def tasks(name: str) -> Sequence[Task]:
        from envpack.fleet.orders import build_tasks

        return build_tasks(project, [name], shared)

    done = each.on_cluster(settled.on, tasks)
    here = EachModel([], console) if settled.store_only else each
    look_ahead(project, here.left, shared)
    built = here.do(lambda name: build_model(project, name, console, store=shared))
    for model in built:
        console.warned(*model.warnings)
        if model.changed and model.forms:
            console.note(_forms_line(model))
    console.warned(_unpacked_often(built))
    console.warned(unpacked_at_once(project, {model.backend for model in built}))
    if any(model.changed for model in built):
        each.next_step("verify", repository, models, said.only("triton", "backends"))
    return each.finish({"models": built} | done.as_json(), "built")


def _make(file: Path, project: Project, console: Console) -> int:
    from envpack.workflow.project import project_store
    from envpack.workflow.recipe import read_recipe
    from envpack.workflow.recipes import make_ingredients

    made = make_ingredients(read_recipe(file), progress=console, store=project_store(project))
    console.result({"made": made.fresh, "digests": made.digests})
    return 0


def _dry_run(project: Project, each: EachModel, console: Console) -> int:
    from envpack.workflow.plan import plan_model

    plans = each.do(lambda name: plan_model(project, name))
    for plan in plans:
        console.warned(*plan.warnings)
        for line in _plan_lines(plan):
            console.show(line)
    return each.finish({"models": plans}, "planned")


def _unpacked_often(built: Sequence[BuiltModel]) -> str:
    """A warning if models share an archive: a server unpacks it for each path that names it."""
    archives = [model.environment for model in built if model.environment and model.environment.is_file()]
    most = max(Counter(archive.stat().st_ino for archive in archives).values(), default=0)
    if most < 2:
        return ""
    return f"{most} models have the same archive, and a server unpacks it for each of them; --format dir is shared"


def _plan_lines(plan: ModelPlan) -> Iterator[str]:
    python = f": Python {plan.python} ({plan.python_source}), Triton {plan.release}" if plan.python else ""
    yield f"[bold]{plain(plan.name)}[/bold]{plain(python)}"
    for change in plan.changes:
        yield f"  would {plain(change.action)} [dim]({plain(change.reason)})[/dim]"
    if not plan.changes:
        yield "  up to date"


def _forms_line(model: BuiltModel) -> str:
    """The cost of each form of an environment: bytes to ship, and how much longer it takes to load."""
    forms = []
    for form in model.forms:
        later = f", loads about {form.unpack_seconds} s later" if form.unpacked else ""
        forms.append(f"{form.form} {form.size / 1e6:.0f} MB{later}")
    return f"    {plain(model.name)}: {' · '.join(forms)}"
