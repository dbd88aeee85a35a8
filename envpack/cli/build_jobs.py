"""`envpack build --emit kubernetes`: the builds as Jobs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from envpack.cli import options
from envpack.cli.console import Console

if TYPE_CHECKING:
    from envpack.project import Project
    from envpack.store import SharedStore
    from envpack.workflow import BuildOptions

_OPTIONS = (
    click.option(
        "--emit",
        type=click.Choice(["kubernetes"]),
        help="Build nothing; print a Kubernetes Job for each different environment, which puts it into the --store.",
    ),
    click.option(
        "--image",
        default="",
        metavar="IMAGE",
        help="With --emit: an image with envpack[store] and a compiler. Default: triton-envpack, tagged with envpack's "
        "version; the guide Many machines has its Dockerfile.",
    ),
    click.option(
        "--secret",
        default="",
        metavar="NAME",
        help="With --emit: the Secret with the credentials for the store, as variables. Default: envpack-store.",
    ),
    click.option(
        "--memory", type=options.SIZE, metavar="SIZE", help="With --emit: most memory of each Job. Default: 4g."
    ),
)
_FOR_JOBS = ("image", "secret", "memory")


def job_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options of Jobs."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def take_job_options(settings: dict[str, Any], *, emit: str | None, on: str, dry_run: bool) -> dict[str, Any]:
    """Remove the options of Jobs from those of a command; returns the fields of `BuildJobOptions` that were given."""
    given = {name: value for name in _FOR_JOBS if (value := settings.pop(name))}
    if given and not emit:
        raise click.UsageError(f"--{next(iter(given))} is for the Jobs of --emit kubernetes.")
    for option in (option for option, value in (("--on", on), ("--dry-run", dry_run)) if emit and value):
        raise click.UsageError(f"{option} does not go with --emit kubernetes, which builds nothing.")
    return {"memory_bytes" if name == "memory" else name: value for name, value in given.items()}


def emit_build_jobs(
    project: Project,
    names: Sequence[str],
    build_options: BuildOptions,
    store: SharedStore | None,
    job: dict[str, Any],
    console: Console,
) -> None:
    """Print the Jobs."""
    from envpack.fleet import BuildJobOptions, build_jobs, jobs_yaml

    documents = build_jobs(project, names, build_options, store, BuildJobOptions(**job))
    if console.as_json:
        console.result({"jobs": list(documents)})
    else:
        click.echo(jobs_yaml(documents), nl=False)
