"""`envpack lock`: the packages of models, chosen once and written down."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import click

from envpack.cli import options
from envpack.cli.console import Console


@click.command(short_help="Choose the packages of models and write them down.")
@click.argument("models", nargs=-1, metavar="[MODEL]...")
@click.option("--all", "every", is_flag=True, help="Every model of the repository.")
@click.option(
    "--update",
    multiple=True,
    metavar="NAME",
    help="Choose this package afresh; may be repeated. Others stay as they are where they still fit.",
)
@options.choice
@options.repository
@options.with_console
def command(
    models: tuple[str, ...],
    repository: Path,
    console: Console,
    *,
    every: bool,
    update: tuple[str, ...],
    **settings: Any,
) -> None:
    """Write envpack.lock into the folder of each MODEL: every package with its address and hash.

    `envpack build` then installs exactly these.
    """
    from envpack.project import open_project
    from envpack.workflow import Choice, lock_model, release_for

    project = open_project(repository)
    names = options.chosen_models(project, models, every=every)
    choice = Choice(**settings)
    console.warned(release_for(project, choice).warning)
    locked = [lock_model(project, name, choice, update=update, progress=console) for name in names]
    for model in locked:
        for change in model.changes:
            console.say(f"    {change}")
    console.result({"models": [options.as_json(dataclasses.asdict(model)) for model in locked]})
