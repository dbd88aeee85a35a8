"""`envpack kubernetes`: builds and verifications as Jobs, printed for ``kubectl apply -f -``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from envpack.cli import options
from envpack.cli.console import Console
from envpack.cli.streams import echo

if TYPE_CHECKING:
    from envpack.settings.table import Settings

_SECRET = click.option(
    "--secret",
    default="",
    metavar="NAME",
    help="The Secret with the credentials for the store, as variables. Default: envpack-store.",
)
_OVERLAY = click.option(
    "--overlay",
    type=options.FILE,
    metavar="FILE",
    help="YAML that is merged into the documents: metadata and spec of the Job, such as namespace or tolerations.",
)


@click.group()
def kubernetes() -> None:
    """Print Kubernetes Jobs that build or verify models in a cluster, as YAML for `kubectl apply -f -`."""


@kubernetes.command("build", cls=options.GroupedCommand, short_help="Print Jobs that build environments.")
@options.models
@click.option(
    "--build-image",
    default="",
    metavar="IMAGE",
    help="An image with envpack[store] and a compiler. Default: triton-envpack, tagged with envpack's version; the "
    "guide Many machines has its Dockerfile.",
)
@_SECRET
@_OVERLAY
@options.settings("kubernetes-build")
@options.repository
@options.with_console
def build(
    models: tuple[str, ...],
    said: Settings,
    build_image: str,
    secret: str,
    overlay: Path | None,
    repository: Path,
    console: Console,
) -> None:
    """Print a Job for each different environment that MODEL, by default all, needs; it is put into the --store."""
    from envpack.fleet.kubernetes_build import build_jobs
    from envpack.fleet.pods import read_overlay
    from envpack.settings.project import open_project
    from envpack.workflow.project import chosen_folders, project_store

    added = read_overlay(overlay) if overlay else None
    project = open_project(repository, said)
    names = chosen_folders(project, models)
    console.warned(*project.warnings)
    is_here = project.of().store.startswith("file:")  # which no Job has, whether it exists or not
    store = None if is_here else project_store(project)
    jobs = build_jobs(project, names, store, image=build_image, secret=secret, overlay=added)
    if not jobs:
        console.note("nothing to build: no model has requirements of its own")
    _show("jobs", jobs, console)


@kubernetes.command("verify", cls=options.GroupedCommand, short_help="Print a Job that verifies models.")
@options.models
@click.option("--claim", metavar="NAME", help="PersistentVolumeClaim with the repository. Default: models.")
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
@_SECRET
@options.signature("Refuse published models that the owner of this public key did not sign.")
@_OVERLAY
@options.settings("kubernetes-verify")
@options.repository
@options.with_console
def verify(
    models: tuple[str, ...],
    said: Settings,
    *,
    claim: str | None,
    envpack_image: str,
    envpack_wheel: str,
    secret: str,
    require_signature: tuple[Path, ...],
    max_age: float | None,
    overlay: Path | None,
    repository: Path,
    console: Console,
) -> None:
    """Print a Job that verifies each MODEL, by default all, in the cluster, with the image that will serve.

    The address of published models, such as s3://bucket/models, may stand in front of them; nothing is mounted then.
    """
    from envpack.fleet.kubernetes_verify import Published, verification_job
    from envpack.fleet.pods import read_overlay
    from envpack.settings.project import open_project
    from envpack.workflow.project import model_names

    address = models[0] if models and "://" in models[0] else ""
    if (require_signature or secret or max_age) and not address:
        raise click.UsageError("--require-signature, --max-age and --secret are for the address of published models.")
    if address and (claim is not None or said.served_from):
        raise click.UsageError("--claim and served_from are for the models of a repository, not for an address.")
    if max_age and not require_signature:
        raise click.UsageError("--max-age is for --require-signature.")
    if bool(envpack_image) == bool(envpack_wheel):
        raise click.UsageError("The Job takes envpack from --envpack-image or --envpack-wheel; give one.")
    project = open_project(repository, said)
    names = models[1:] if address else model_names(project, models)
    published = Published(address=address, keys=require_signature, max_age=max_age, secret=secret) if address else None
    job = verification_job(
        project,
        names,
        claim="models" if claim is None else claim,
        published=published,
        envpack_image=envpack_image,
        envpack_wheel=envpack_wheel,
        overlay=read_overlay(overlay) if overlay else None,
    )
    _show("job", [job], console)


def _show(name: str, documents: Sequence[dict[str, Any]], console: Console) -> None:
    from envpack.fleet.pods import jobs_yaml

    if console.as_json:
        console.result({name: documents[0] if name == "job" else list(documents)})
    else:
        echo(jobs_yaml(documents))
