"""`envpack init`: copy a model repository that builds."""

from __future__ import annotations

from pathlib import Path

import click

from envpack.cli import options
from envpack.cli.console import Console


@click.command()
@click.argument("directory", type=click.Path(path_type=Path), default=Path())
@click.option(
    "--recipe",
    default="digits",
    metavar="NAME",
    help="Name of the recipe: digits or in_place. Default: digits.",
)
@options.with_console
def command(directory: Path, recipe: str, console: Console) -> None:
    """Copy a model repository that builds to DIRECTORY."""
    from envpack.recipes import copy_recipe
    from envpack.support.storage_errors import storage_errors

    console.begin(f"copy recipe {recipe}")
    with storage_errors(directory):
        copy_recipe(recipe, directory)
    console.end(str(directory))
    console.next_step("envpack", "build", *(() if directory == Path() else ("--repository", str(directory))))
    console.result({"recipe": recipe, "directory": str(directory.absolute())})
