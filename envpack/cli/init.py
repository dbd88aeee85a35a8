"""`envpack init`: copy a model repository that builds, or begin a model."""

from __future__ import annotations

from pathlib import Path

import click

from envpack.cli import options
from envpack.cli.console import Console


@click.command()
@click.argument("directory", type=click.Path(path_type=Path), default=Path())
@click.option(
    "--recipe",
    default="",
    metavar="NAME",
    help="Name of the recipe: digits or in_place. Default: digits.",
)
@click.option(
    "--template",
    default="",
    metavar="NAME",
    help="Begin a model instead: model, async, bls, decoupled or torch. DIRECTORY is the folder of the model.",
)
@options.with_console
def command(directory: Path, recipe: str, template: str, console: Console) -> None:
    """Copy a model repository that builds to DIRECTORY, or begin a model in it."""
    from envpack.support.storage_errors import storage_errors

    if recipe and template:
        raise click.UsageError("Give --recipe or --template, not both.")
    with storage_errors(directory):
        if template:
            _begin_model(directory, template, console)
        else:
            _copy_recipe(directory, recipe or "digits", console)


def _begin_model(folder: Path, template: str, console: Console) -> None:
    from envpack.templates import copy_template

    console.begin(f"begin a model from template {template}")
    models = copy_template(template, folder)
    console.end(", ".join(model.name for model in models))
    console.next_step("envpack", "build", "--repository", str(models[0].parent))
    names = [model.name for model in models]
    console.result({"template": template, "repository": str(models[0].parent), "models": names})


def _copy_recipe(directory: Path, recipe: str, console: Console) -> None:
    from envpack.recipes import copy_recipe

    console.begin(f"copy recipe {recipe}")
    copy_recipe(recipe, directory)
    console.end(str(directory))
    console.next_step("envpack", "build", *(() if directory == Path() else ("--repository", str(directory))))
    console.result({"recipe": recipe, "directory": str(directory.absolute())})
