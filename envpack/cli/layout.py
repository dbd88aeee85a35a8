"""`envpack layout`: models and backends as a deployable tree, with a Dockerfile."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from envpack.cli import options
from envpack.cli.console import Console, plain
from envpack.support.text import counted

if TYPE_CHECKING:
    from envpack.settings import Settings


@click.command(cls=options.GroupedCommand, short_help="Assemble models and backends into a tree to deploy.")
@options.models
@click.option(
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    required=True,
    metavar="DIRECTORY",
    help="Where to put the tree. One that envpack made is replaced.",
)
@options.settings("layout")
@options.repository
@options.with_console
def command(models: tuple[str, ...], said: Settings, output: Path, repository: Path, console: Console) -> None:
    """Assemble each MODEL, by default all, with the backends that they name into one tree.

    Prints the command that serves it. The Dockerfile in the tree makes an image that serves it.
    """
    from envpack.deployment import assemble, docker_command, plan_deployment, server_arguments
    from envpack.settings import open_project

    project = open_project(repository, said)
    plan = plan_deployment(project, options.model_names(project, models))
    for caution in plan.cautions:
        console.warned(caution)
    models_and_backends = f"{counted(len(plan.models), 'model')} and {counted(len(plan.backends), 'backend')}"
    console.begin(f"assemble {models_and_backends} in {output}")
    description = assemble(plan, output, link_mode=project.of().link_mode)
    console.end(f"{counted(description['files'], 'file')}, {description['size'] / 1e6:.1f} MB")
    start = docker_command(plan, output.absolute())
    console.show("serve it with:")
    console.show(plain(f"  {shlex.join(start)}"))
    console.result(
        {
            "layout": str(output.absolute()),
            "description": description,
            "cautions": list(plan.cautions),
            "command": list(server_arguments(plan)),
            "docker": list(start),
        }
    )
