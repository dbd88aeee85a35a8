"""`envpack verify`: boot the server, ask the models, give a verdict."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from envpack.cli import options
from envpack.cli.cluster_view import on_cluster
from envpack.cli.console import Console, Failure
from envpack.support.errors import EnvpackError

if TYPE_CHECKING:
    from envpack.settings import Project, Settings
    from envpack.workflow import Trust, Verdict


_STATUS = {"yes": 0, "no": 1, "yes as far as checked": 8}


@click.command(cls=options.GroupedCommand, short_help="Boot a real Triton server and prove that it serves the models.")
@options.models
@options.settings("verify")
@options.signature("Refuse models that the owner of this public key did not sign.")
@click.option(
    "--report",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write the verdict as one HTML file.",
)
@options.repository
@options.with_console
def command(
    models: tuple[str, ...],
    said: Settings,
    report: Path | None,
    require_signature: tuple[Path, ...],
    max_age: float | None,
    repository: Path,
    console: Console,
) -> int:
    """Boot a real Triton server and prove that it serves each MODEL, by default all of the repository.

    The address of published models, such as s3://bucket/models or oci://registry/name:tag, may stand in front of them.
    They come without samples; those of the repository are sent.
    """
    from envpack.settings import open_project
    from envpack.workflow import model_names, verify_address, verify_repository

    address = models[0] if models and "://" in models[0] else ""
    project = open_project(repository, said)
    models = models[1:] if address else model_names(project, models)
    if require_signature and not address:
        raise click.UsageError("--require-signature is for the address of a published repository.")
    trust = options.trust_of(require_signature, max_age)
    on = project.of().on
    if on:
        _refuse_on_cluster(said)
    if report is not None and not report.absolute().parent.is_dir():
        raise click.UsageError(f"--report: there is no folder {report.absolute().parent}.")
    if on:
        return _show(*verdict_of_cluster(on, project, address, models, console, trust), report, console)
    if address:
        verdict = verify_address(project, address, models, console, trust=trust)
    else:
        verdict = verify_repository(project, models, console)
    return _show(verdict, {}, report, console)


def _refuse_on_cluster(said: Settings) -> None:
    given = {"--keep": said.keep, "port": said.port}
    for option in (option for option, value in given.items() if value):
        raise click.UsageError(f"{option} is for a server of this machine, and does not go with --on.")


def _show(verdict: Verdict, more: Mapping[str, Any], report: Path | None, console: Console) -> int:
    from envpack.cli.verdict_view import draw
    from envpack.workflow import write_report

    for part in draw(verdict):
        console.show(part, even_if_quiet=not verdict.ok)
    document: dict[str, Any] = {"verdict": verdict.to_json(), **more}
    code = _STATUS[verdict.answer]
    if report is not None:
        try:
            write_report(verdict, report)
        except EnvpackError as error:  # which must not hide the verdict
            failure = Failure.of(error)
            console.show_failure(failure)
            document["error"] = dataclasses.asdict(failure)
            code = code or failure.exit_code
    console.result(document)
    return code


def verdict_of_cluster(
    cluster: str, project: Project, address: str, models: Sequence[str], console: Console, trust: Trust | None = None
) -> tuple[Verdict, dict[str, Any]]:
    """Verify models of a repository, or of a published one, on the workers of a cluster.

    Returns:
        The verdict on all, and what ``--json`` says of the cluster.
    """
    from envpack.fleet import verify_tasks
    from envpack.workflow import combine_verdicts

    started, place = time.monotonic(), address or str(project.repository)
    done = on_cluster(cluster, lambda: verify_tasks(project, place, models, trust), console)
    done.raise_first_error(console)
    parts = [found.product.verdict for found in done.done if found.product.verdict]
    whole = project.repository if not address and not models else None
    return combine_verdicts(parts, folder=whole, seconds=time.monotonic() - started), done.as_json()
