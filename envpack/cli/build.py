"""`envpack build`: execution environments beside their models."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import click

from envpack.cli import options
from envpack.cli.console import Console


@click.command(short_help="Build execution environments and put them beside their models.")
@click.argument("models", nargs=-1, metavar="[MODEL]...")
@click.option("--all", "every", is_flag=True, help="Every model of the repository.")
@click.option("--python", default="", metavar="3.10", help="Python version. Default: what envpack.toml says.")
@click.option(
    "--format",
    "archive_format",
    type=click.Choice(["dir", "tar.gz"]),
    default="dir",
    help="A folder beside the model (loads fastest), or an archive (easy to ship). Default: dir.",
)
@click.option(
    "--channel",
    "channels",
    multiple=True,
    default=("local",),
    metavar="URL",
    help="Conda channel, may be repeated. Default: local, which makes packages of this machine's interpreters.",
)
@click.option(
    "--stub",
    type=click.Choice(["auto", "always", "never"]),
    default="auto",
    help="Put a stub beside the model. Default: auto, when the release's own has another Python or cannot do NumPy 2.",
)
@options.triton
@options.abi
@options.toolchain
@options.repository
@options.with_console
def command(models: tuple[str, ...], repository: Path, console: Console, *, every: bool, **settings: Any) -> None:
    """Build the execution environment of each MODEL and put it beside the model."""
    from envpack.building import BuildOptions, build_model, release_for
    from envpack.project import open_project
    from envpack.repository import find_models, no_models, open_model

    project = open_project(repository)
    if every == bool(models):
        raise click.UsageError("Name models, or give --all.")
    # All are opened first, so that a wrong name or a bad configuration changes none of the others.
    chosen = find_models(project.repository) if every else [open_model(project.repository / name) for name in models]
    if not chosen:
        raise no_models(project.repository)
    how = BuildOptions(**settings)
    console.warned(release_for(project, how).caution)
    built = [build_model(project, model.folder.name, how, console) for model in chosen]
    console.result({"models": [_as_json(dataclasses.asdict(model)) for model in built]})


def _as_json(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: str(value) if isinstance(value, Path) else value for name, value in fields.items()}
