"""`envpack layout`: a deployable tree, or a container image."""

from __future__ import annotations

import dataclasses
import shlex
from pathlib import Path

import click

from envpack.cli import options
from envpack.cli.console import Console


@click.command(short_help="Put models and backends into one tree, or an image, that can be deployed.")
@click.argument("models", nargs=-1, metavar="[MODEL]...")
@click.option(
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    required=True,
    metavar="DIRECTORY",
    help="Where to put the tree. One that envpack made is replaced.",
)
@click.option("--image", default="", metavar="TAG", help="Build a container image with it too.")
@click.option(
    "--from", "base", default="", metavar="IMAGE", help="Image to build upon. Default: the release's official one."
)
@click.option("--pull", is_flag=True, help="Let that image be fetched if the daemon does not have it.")
@click.option(
    "--served-from",
    default="",
    metavar="PATH",
    help="Path of the models on the server. Default: what envpack.toml says, else /models.",
)
@options.triton
@options.backends
@options.repository
@options.with_console
def command(
    models: tuple[str, ...],
    output: Path,
    *,
    image: str,
    base: str,
    pull: bool,
    served_from: str,
    triton: str,
    backends: Path | None,
    repository: Path,
    console: Console,
) -> None:
    """Put each MODEL, by default all of the repository, with the backends that they name into one tree.

    Prints the command that serves it. Environments and stubs are hard links to those of the repository.
    """
    from envpack.deployment import (
        ImageOptions,
        assemble,
        build_image,
        docker_command,
        plan_deployment,
        server_arguments,
    )
    from envpack.project import open_project
    from envpack.releases import DEFAULT_RELEASE, find_release
    from envpack.repository import backends_folder

    if not image and (base or pull):
        raise click.UsageError("Give --image with --from and --pull.")
    project = open_project(repository)
    release = find_release(triton or project.triton or DEFAULT_RELEASE)
    plan = plan_deployment(project, backends_folder(project, backends), release, models, served_from=served_from)
    for caution in plan.cautions:
        console.warned(caution)
    console.begin(f"put {len(plan.models)} models and {len(plan.backends)} backends into {output}")
    description = assemble(plan, output)
    console.end(f"{description['files']} files, {description['size'] / 1e6:.1f} MB")
    built = build_image(plan, output.absolute(), image, ImageOptions(base, pull), console) if image else None
    start = docker_command(plan, output.absolute(), image)
    console.say(f"serve it with:\n  {shlex.join(start)}")
    console.result(
        {
            "layout": str(output.absolute()),
            "description": description,
            "cautions": list(plan.cautions),
            "command": list(server_arguments(plan)),
            "docker": list(start),
            "image": dataclasses.asdict(built) if built else None,
        }
    )
