"""`envpack layout`: models and backends as a deployable tree, with a Dockerfile."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from envpack.cli import options
from envpack.cli.console import Console

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
    from envpack.settings import open_project
    from envpack.support.folders import whole_path
    from envpack.workflow import lay_out, model_names

    project = open_project(repository, said)
    done = lay_out(project, model_names(project, models), output, console)
    console.warned(*done.cautions)
    console.serve_with(done.docker)
    console.result({"layout": str(whole_path(output)), **options.as_json(done)})
