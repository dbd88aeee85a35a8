"""`envpack verify`: boot the server, ask the models, give a verdict."""

from __future__ import annotations

import collections
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from envpack.cli import options
from envpack.cli.console import Console, Failure, advice, plain
from envpack.cli.each_model import on_cluster
from envpack.support.errors import EnvpackError

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from envpack.settings.project import Project
    from envpack.settings.table import Settings
    from envpack.workflow.verify import ModelVerdict, Trust, Verdict


_STATUS = {"yes": 0, "no": 1, "yes as far as checked": 8}


@click.command(cls=options.GroupedCommand)
@options.models
@options.settings("verify")
@options.signature("Refuse models that the owner of this public key did not sign.")
@click.option("--report", type=options.PLACE, metavar="FILE", help="Write the verdict as one HTML file.")
@options.repository
@options.with_console
def verify(
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
    from envpack.settings.project import open_project
    from envpack.support.replacement import check_output
    from envpack.workflow.project import model_names
    from envpack.workflow.verify import verify_models

    address = models[0] if models and "://" in models[0] else ""
    project = open_project(repository, said)
    console.warned("" if address else project.overlooked)
    models = models[1:] if address else model_names(project, models)
    if require_signature and not address:
        raise click.UsageError("--require-signature is for the address of a published repository.")
    trust = options.trust_of(require_signature, max_age)
    on = project.of().on
    if on:
        for option, given in {"--keep": said.keep, "port": said.port}.items():
            if given:
                raise click.UsageError(f"{option} is for a server of this machine, and does not go with --on.")
    if report is not None:
        check_output(report)
    if on:
        return _show(*verdict_of_cluster(on, project, address, models, console, trust), report, console)
    return _show(verify_models(project, address, models, console, trust=trust), {}, report, console)


def _show(verdict: Verdict, more: Mapping[str, Any], report: Path | None, console: Console) -> int:
    from envpack.workflow.verify import write_report

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
            document["error"] = failure
            code = code or failure.exit_code
    console.result(document)
    return code


def verdict_of_cluster(
    cluster: str, project: Project, address: str, models: Sequence[str], console: Console, trust: Trust | None = None
) -> tuple[Verdict, dict[str, Any]]:
    """The verdict on models of a repository, or a published one, by a cluster; and what ``--json`` has of that."""
    from envpack.fleet.orders import verify_tasks
    from envpack.workflow.verify import combine_verdicts

    started, place = time.monotonic(), address or str(project.repository)
    done = on_cluster(cluster, lambda: verify_tasks(project, place, models, trust), console)
    done.raise_first_error(console)
    parts = [found.product.verdict for found in done.done if found.product.verdict]
    whole = project.repository if not address and not models else None
    return combine_verdicts(parts, folder=whole, seconds=time.monotonic() - started), done.as_json()


_WORDS = {"ok": "passed", "failed": "failed", "unchecked": "not checked", "warning": "warned", "skipped": "left out"}
_NAME_WIDTH = 40  # columns of a terminal that the names of models get, if they are that long


def draw(verdict: Verdict) -> Iterator[RenderableType]:
    """The parts of the picture, top to bottom: table of models, failures, last line."""
    yield _table(verdict)
    for model in verdict.models:
        yield from _failure(model)
    yield from _warnings(verdict)
    for check in verdict.checks:
        if not check.ok:
            yield f"[red]{check.id}:[/red] {plain(check.evidence)}"
            yield f"[bold]  fix:[/bold] {advice(check.fix)}"
    for leftover in verdict.leftovers:
        yield f"[red]left behind:[/red] {plain(leftover)}"
    if verdict.answer != "yes" and verdict.log:
        yield f"[dim]the server's log: {plain(verdict.log)}[/dim]"
    yield _last_line(verdict)


def _table(verdict: Verdict) -> Table:
    from rich import box
    from rich.table import Table

    where = f"{verdict.runtime}: {verdict.image}" if verdict.image else "a process of this machine"
    table = Table(
        title=plain(f"Triton {verdict.release or '?'} (server {verdict.server}), {where}"),
        box=box.SIMPLE_HEAD,
        title_justify="left",
        pad_edge=False,
        collapse_padding=True,
    )
    # A name may be folded where the terminal is too narrow, but no part of it is ever missing.
    widest = max((len(model.name) for model in verdict.models), default=0)
    table.add_column("model", overflow="fold", min_width=min(widest, _NAME_WIDTH))
    for heading in ("verdict", "Python", "NumPy", "stub", "loads in", "answers in", "result"):
        table.add_column(heading)
    for model in verdict.models:
        table.add_row(
            plain(model.name),
            _fitness(model),
            plain(model.python or "–"),
            plain(model.numpy or "–"),
            _stub(model),
            f"{model.load_seconds:.2f} s" if model.is_verified else "–",
            f"{model.latency.p50 * 1000:.1f} ms" if model.latency else "–",
            _answers(model),
        )
    return table


def _fitness(model: ModelVerdict) -> str:
    if not model.ok:
        return "[red]failed[/red]"
    if not model.is_verified:
        return "[yellow]not verified[/yellow]"
    return "[green]ok[/green]" if model.complete else "[yellow]not fully checked[/yellow]"


def _stub(model: ModelVerdict) -> str:
    if model.stub is None:
        return "–"
    if not model.stub.version:
        return "the release's own"
    return plain(f"envpack {model.stub.version}") + (", warm" if model.stub.start == "warm" else "")


def _answers(model: ModelVerdict) -> str:
    if model.samples is not None:
        return plain(str(model.samples))
    counts = collections.Counter(_WORDS[check.status] for check in model.checks)
    return ", ".join(f"{counts[word]} {word}" for word in dict.fromkeys(_WORDS.values()) if counts[word])


def _warnings(verdict: Verdict) -> Iterator[RenderableType]:
    """Warnings; a fix that several models share stands once, below them."""
    by_fix: dict[str, list[str]] = {}
    of_models = [(f"{model.name}: {check.id}", check) for model in verdict.models for check in model.checks]
    for name, check in (*of_models, *((check.id, check) for check in verdict.checks)):
        if check.status in {"warning", "unchecked"}:
            word = ": not checked" if check.status == "unchecked" else ""
            by_fix.setdefault(check.fix, []).append(f"[yellow]{plain(name)}{word}:[/yellow] {plain(check.evidence)}")
    for fix, lines in by_fix.items():
        yield from lines
        yield f"  [dim]{advice(fix)}[/dim]"


def _failure(model: ModelVerdict) -> Iterator[RenderableType]:
    reason = model.failure.reason if model.failure else ""
    for check in model.checks:
        if not check.ok and check.evidence != reason:
            yield f"[red]{plain(model.name)}: {check.id}:[/red] {plain(check.evidence)}"
            if check.fix:
                yield f"[bold]  fix:[/bold] {advice(check.fix)}"
    if model.failure is None:
        return
    yield f"[red]{plain(model.name)}: {model.failure.kind}:[/red] {plain(model.failure.reason)}"
    for line in model.failure.details:
        yield f"    {plain(line)}"
    if model.failure.fix:
        yield f"[bold]  fix:[/bold] {advice(model.failure.fix)}"


def _last_line(verdict: Verdict) -> str:
    count = verdict.count
    if verdict.kept:
        count = f"{count}, left running at {plain(verdict.kept)}"
    elif verdict.answer != "no":
        count = f"{count}, nothing left behind"
    color = {"yes": "green", "no": "red", "yes as far as checked": "yellow"}[verdict.answer]
    return f"[bold {color}]VERDICT: {verdict.answer}[/bold {color}] – {count}, {verdict.seconds:.1f} s"
