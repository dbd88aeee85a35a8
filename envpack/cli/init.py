"""`envpack init`: copy a model repository that builds, write a new model, or make one of a trained artifact."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from envpack.cli import options
from envpack.cli.console import Console, plain

if TYPE_CHECKING:
    from envpack.settings.table import Settings

_LIST = ""  # the value of --recipe and --template without a name


@click.command()
@click.argument("directory", type=options.PLACE, default=Path())
@click.option(
    "--recipe",
    is_flag=False,
    flag_value=_LIST,
    default=None,
    metavar="[NAME]",
    help="Name of the recipe. Without a name: list the recipes. Default: digits.",
)
@click.option(
    "--template",
    is_flag=False,
    flag_value=_LIST,
    default=None,
    metavar="[NAME]",
    help="Write a new model instead; DIRECTORY is its folder. Without a name: list the templates.",
)
@click.option(
    "--from",
    "artifact",
    metavar="ARTIFACT",
    help="Serve a trained model; DIRECTORY is its folder. An MLflow model, models:/NAME/1, a .joblib or .onnx file, "
    "or module:function.",
)
@click.option("--native", is_flag=True, help="With --from and an ONNX file: let Triton's ONNX Runtime serve it.")
@options.settings("init")
@options.with_console
def init(
    directory: Path,
    recipe: str | None,
    template: str | None,
    artifact: str | None,
    *,
    native: bool,
    said: Settings,
    console: Console,
) -> None:
    """Copy a model repository that builds to DIRECTORY, or write a new model into it."""
    from envpack.support.errors import storage_errors

    if sum(kind is not None for kind in (recipe, template, artifact)) > 1:
        raise click.UsageError("Give only one of --recipe, --template and --from.")
    if artifact is None and (words := [*(["--native"] if native else []), *said.words("init")]):
        raise click.UsageError(f"{words[0]} is for --from.")
    if _LIST in (recipe, template):
        _list("recipes" if template is None else "templates", console)
        return
    if artifact is not None:
        _adopt(artifact, directory, native=native, said=said, console=console)
        return
    with storage_errors(directory):
        if template is not None:
            _write_model(directory, template, console)
        else:
            _copy_recipe(directory, recipe or _default_recipe(directory), console)


def _list(kind: Literal["recipes", "templates"], console: Console) -> None:
    from envpack.settings.examples import example_titles

    titles = example_titles(kind)
    width = max(map(len, titles))
    for name, title in titles.items():
        console.show(f"{plain(name):{width}}  {plain(title)}")
    console.next_step("envpack", "init", f"--{kind[:-1]}", next(iter(titles)), "DIRECTORY")
    console.result({kind: [{"name": name, "title": title} for name, title in titles.items()]})


def _write_model(folder: Path, template: str, console: Console) -> None:
    from envpack.settings.examples import copy_template

    console.begin(f"write a model from template {template}")
    models = copy_template(template, folder)
    console.end(", ".join(model.name for model in models))
    console.next_step("envpack", "build", "--repository", str(models[0].parent))
    document = {"template": template, "repository": models[0].parent, "models": [model.name for model in models]}
    console.result(document)


def _adopt(artifact: str, folder: Path, *, native: bool, said: Settings, console: Console) -> None:
    from envpack.workflow.adoption import adopt

    made = adopt(artifact, folder, native=native, said=said, progress=console)
    console.warned(*made.warnings)
    repository = str(made.folder.parent)
    command = "verify" if native else "build"
    console.next_step("envpack", command, "--repository", repository, *made.said.words(command), made.folder.name)
    console.result(
        {
            "from": made.title,
            "repository": repository,
            "models": [made.folder.name],
            "inputs": made.inputs,
            "outputs": made.outputs,
            "samples": made.samples,
            "warnings": made.warnings,
        }
    )


def _default_recipe(directory: Path) -> str:
    """The recipe for a folder alone; raises a UsageError if the folder has the name of another example."""
    from envpack.settings.examples import example_titles
    from envpack.support.errors import UsageError

    default, name = "digits", directory.name
    kinds: tuple[Literal["recipes", "templates"], ...] = ("recipes", "templates")
    for kind in kinds:
        if name != default and name in example_titles(kind):
            what = f"a folder alone gets the recipe {default}, and {name} is the name of one of the {kind}"
            fix = f"give --{kind[:-1]} {name} and a folder, or --recipe {default} {shlex.quote(str(directory))}"
            raise UsageError("usage", what, fix)
    return default


def _copy_recipe(directory: Path, recipe: str, console: Console) -> None:
    from envpack.settings.examples import copy_recipe

    console.begin(f"copy recipe {recipe}")
    copy_recipe(recipe, directory)
    console.end(f"{directory}: README.md there has all steps")
    console.next_step("envpack", "build", *(() if directory == Path() else ("--repository", str(directory))))
    console.result({"recipe": recipe, "directory": directory.absolute()})
