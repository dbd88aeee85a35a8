"""`envpack kubernetes`: builds and verifications as Jobs, printed for ``kubectl apply -f -``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from envpack.cli import options
from envpack.cli.console import Console

if TYPE_CHECKING:
    from envpack.settings import Settings


@click.group(short_help="Print Kubernetes Jobs that build or verify models.")
def command() -> None:
    """Print Kubernetes Jobs that build or verify models in a cluster, as YAML for `kubectl apply -f -`."""


@command.command("build", cls=options.GroupedCommand)
@options.models
@click.option(
    "--build-image",
    default="",
    metavar="IMAGE",
    help="An image with envpack[store] and a compiler. Default: triton-envpack, tagged with envpack's version; the "
    "guide Many machines has its Dockerfile.",
)
@click.option(
    "--secret",
    default="",
    metavar="NAME",
    help="The Secret with the credentials for the store, as variables. Default: envpack-store.",
)
@options.settings("kubernetes-build")
@options.repository
@options.with_console
def build(
    models: tuple[str, ...], said: Settings, build_image: str, secret: str, repository: Path, console: Console
) -> None:
    """Print a Job for each different environment that MODEL, by default all, needs; it is put into the --store."""
    from envpack.fleet import build_jobs
    from envpack.settings import open_project
    from envpack.workflow import chosen_folders, project_store

    project = open_project(repository, said)
    names = chosen_folders(project, models)
    console.warned(project.release.warning)
    jobs = build_jobs(project, names, project_store(project), image=build_image, secret=secret)
    _show("jobs", jobs, console)


@command.command("verify", cls=options.GroupedCommand)
@options.models
@click.option(
    "--claim", default="models", metavar="NAME", help="PersistentVolumeClaim with the repository. Default: models."
)
@click.option(
    "--envpack-image",
    default="",
    metavar="IMAGE",
    help="The image from which the Job takes envpack: an official image of Python in which pip installed envpack.",
)
@click.option(
    "--envpack-wheel",
    default="",
    metavar="WHEEL",
    help="Or the wheel of envpack that the Job installs: an address, or a path as the Job sees the repository.",
)
@options.settings("kubernetes-verify")
@options.repository
@options.with_console
def verify(
    models: tuple[str, ...],
    said: Settings,
    claim: str,
    envpack_image: str,
    envpack_wheel: str,
    repository: Path,
    console: Console,
) -> None:
    """Print a Job that verifies each MODEL, by default all, in the cluster, with the image that will serve."""
    from envpack.fleet import verification_job
    from envpack.settings import open_project
    from envpack.workflow import model_names

    if bool(envpack_image) == bool(envpack_wheel):
        raise click.UsageError("The Job takes envpack from --envpack-image or --envpack-wheel; give one.")
    project = open_project(repository, said)
    names = model_names(project, models)
    where = {"claim": claim, "envpack_image": envpack_image, "envpack_wheel": envpack_wheel}
    _show("job", [verification_job(project, names, **where)], console)


def _show(name: str, documents: Sequence[dict[str, Any]], console: Console) -> None:
    from envpack.fleet import jobs_yaml

    if console.as_json:
        console.result({name: documents[0] if name == "job" else list(documents)})
    else:
        click.echo(jobs_yaml(documents), nl=False)
