"""`envpack lock`: resolve the packages of models and write them to lockfiles."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from envpack.cli import options
from envpack.cli.console import Console, plain
from envpack.cli.each_model import EachModel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from envpack.fleet import Task
    from envpack.settings import Settings
    from envpack.workflow import LockedModel


@click.command(cls=options.GroupedCommand, short_help="Resolve the packages of models and write them to lockfiles.")
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
def command(
    models: tuple[str, ...], said: Settings, repository: Path, console: Console, *, update: tuple[str, ...]
) -> int:
    """Write envpack.lock into the folder of each MODEL, by default all: every package with its address and hash.

    `envpack build` then installs exactly these. A model that fails does not keep the others from being locked.
    """
    from envpack.settings import open_project
    from envpack.workflow import check_model, chosen_folders, lock_model, project_store

    project = open_project(repository, said)
    names = chosen_folders(project, models)
    console.warned(*project.warnings)
    shared = project_store(project)
    each = EachModel(names, console)
    each.do(lambda name: check_model(project, name))  # what is wrong there is an error before any work

    def tasks(name: str) -> Sequence[Task]:
        from envpack.fleet import lock_tasks

        return lock_tasks(project, [name], update, shared)

    done = each.on_cluster(project.of().on, tasks)
    locks = done.locks

    def lock(name: str) -> LockedModel:
        return lock_model(project, name, update=update, progress=console, store=shared, resolved=locks.get(name, ""))

    locked = each.do(lock)
    for model in locked:
        console.warned(*model.warnings)
        for change in model.changes:
            console.show(f"    {plain(change)}")
        if not (shared and shared.push):
            console.warned(_local_packages(model))
    if any(model.changed for model in locked):
        each.next_step("build", repository, models)
    entries = [options.as_json(model) for model in locked]
    return each.finish({"models": entries} | done.as_json(), "locked")


def _local_packages(model: LockedModel) -> str:
    """What to know about a lock that other machines cannot install, or ``""``."""
    if not model.local:
        return ""
    return (
        f"{model.name}: the lock names {', '.join(model.local)} by a path of this machine; "
        "for other machines lock with --store URL --set push=true; "
        "or with --channel ADDRESS, see `envpack channel add-python --help`"
    )
