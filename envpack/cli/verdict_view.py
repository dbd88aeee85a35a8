"""A verdict for people's eyes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from envpack.verification import ModelVerdict, Verdict


def draw(verdict: Verdict) -> Iterator[RenderableType]:
    """The parts of the picture, top to bottom: table of models, failures, last line."""
    yield _table(verdict)
    for model in verdict.models:
        yield from _failure(model)
    for leftover in verdict.leftovers:
        yield f"[red]left behind:[/red] {leftover}"
    yield _last_line(verdict)


def _table(verdict: Verdict) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(
        title=f"Triton {verdict.release or '?'} (server {verdict.server})", box=box.SIMPLE_HEAD, title_justify="left"
    )
    for heading in ("model", "verdict", "Python", "NumPy", "stub", "loaded in", "answers"):
        table.add_column(heading)
    for model in verdict.models:
        table.add_row(
            model.name,
            "[green]ok[/green]" if model.ok else "[red]failed[/red]",
            model.python or "–",
            model.numpy or "–",
            _stub(model),
            f"{model.load_seconds:.2f} s",
            _answers(model),
        )
    return table


def _stub(model: ModelVerdict) -> str:
    if model.stub is None:
        return "–"
    return f"envpack {model.stub.version}" if model.stub.version else "the release's own"


def _answers(model: ModelVerdict) -> str:
    if model.samples is not None:
        return f"{model.samples.right} {model.samples.noun} right of {model.samples.sent} {model.samples.noun} sent"
    passed = sum(check.ok for check in model.checks)
    return f"{passed} of {len(model.checks)} checks passed"


def _failure(model: ModelVerdict) -> Iterator[RenderableType]:
    from rich.markup import escape

    told = model.failure.reason if model.failure else ""
    for check in model.checks:
        if not check.ok and check.evidence != told:
            yield f"[red]{model.name}: {check.id}:[/red] {escape(check.evidence)}"
            if check.fix:
                yield f"[bold]  fix:[/bold] {escape(check.fix)}"
    if model.failure is None:
        return
    yield f"[red]{model.name}: {model.failure.kind}:[/red] {escape(model.failure.reason)}"
    for line in model.failure.details:
        yield f"    {escape(line)}"
    if model.failure.fix:
        yield f"[bold]  fix:[/bold] {escape(model.failure.fix)}"


def _last_line(verdict: Verdict) -> str:
    right = sum(model.ok for model in verdict.models)
    count = f"{right} of {len(verdict.models)} models serve"
    if verdict.ok:
        return f"[bold green]VERDICT: yes[/bold green] – {count}, nothing left behind, {verdict.seconds:.1f} s"
    return f"[bold red]VERDICT: no[/bold red] – {count}, {verdict.seconds:.1f} s"
