"""Draws a verdict on the terminal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from envpack.verification import ModelVerdict, Verdict

_NAME_WIDTH = 40  # columns of a terminal that the names of models get, if they are that long


def draw(verdict: Verdict) -> Iterator[RenderableType]:
    """The parts of the picture, top to bottom: table of models, failures, last line."""
    from rich.markup import escape

    yield _table(verdict)
    for model in verdict.models:
        yield from _failure(model)
    yield from _warnings(verdict)
    yield from _server_checks(verdict)
    for leftover in verdict.leftovers:
        yield f"[red]left behind:[/red] {escape(leftover)}"
    yield _last_line(verdict)


def _table(verdict: Verdict) -> Table:
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    table = Table(
        title=escape(f"Triton {verdict.release or '?'} (server {verdict.server}), {_where(verdict)}"),
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
            escape(model.name),
            "[green]ok[/green]" if model.ok else "[red]failed[/red]",
            escape(model.python or "–"),
            escape(model.numpy or "–"),
            _stub(model),
            f"{model.load_seconds:.2f} s",
            f"{model.latency.p50 * 1000:.1f} ms" if model.latency else "–",
            _answers(model),
        )
    return table


def _stub(model: ModelVerdict) -> str:
    from rich.markup import escape

    if model.stub is None:
        return "–"
    return escape(f"envpack {model.stub.version}") if model.stub.version else "the release's own"


def _answers(model: ModelVerdict) -> str:
    if model.samples is not None:
        return f"{model.samples.right} of {model.samples.sent} {model.samples.noun} right"
    passed = sum(check.status == "ok" for check in model.checks)
    return f"{passed} of {len(model.checks)} checks passed"


def _where(verdict: Verdict) -> str:
    return f"{verdict.runtime}: {verdict.image}" if verdict.image else "a process of this machine"


def _warnings(verdict: Verdict) -> Iterator[RenderableType]:
    """Warnings; a fix that several models share stands once, below them."""
    from rich.markup import escape

    by_advice: dict[str, list[str]] = {}
    of_models = [(f"{model.name}: {check.id}", check) for model in verdict.models for check in model.checks]
    for name, check in (*of_models, *((check.id, check) for check in verdict.checks)):
        if check.status == "warning":
            by_advice.setdefault(check.fix, []).append(f"[yellow]{escape(name)}:[/yellow] {escape(check.evidence)}")
    for advice, lines in by_advice.items():
        yield from lines
        yield f"  [dim]{escape(advice)}[/dim]"


def _server_checks(verdict: Verdict) -> Iterator[RenderableType]:
    from rich.markup import escape

    for check in verdict.checks:
        if not check.ok:
            yield f"[red]{check.id}:[/red] {escape(check.evidence)}"
            yield f"[bold]  fix:[/bold] {escape(check.fix)}"


def _failure(model: ModelVerdict) -> Iterator[RenderableType]:
    from rich.markup import escape

    reason = model.failure.reason if model.failure else ""
    for check in model.checks:
        if not check.ok and check.evidence != reason:
            yield f"[red]{escape(model.name)}: {check.id}:[/red] {escape(check.evidence)}"
            if check.fix:
                yield f"[bold]  fix:[/bold] {escape(check.fix)}"
    if model.failure is None:
        return
    yield f"[red]{escape(model.name)}: {model.failure.kind}:[/red] {escape(model.failure.reason)}"
    for line in model.failure.details:
        yield f"    {escape(line)}"
    if model.failure.fix:
        yield f"[bold]  fix:[/bold] {escape(model.failure.fix)}"


def _last_line(verdict: Verdict) -> str:
    from rich.markup import escape

    right = sum(model.ok for model in verdict.models)
    count = f"{right} of {len(verdict.models)} models serve"
    if verdict.kept:
        count = f"{count}, left running at {escape(verdict.kept)}"
    elif verdict.ok:
        count = f"{count}, nothing left behind"
    if verdict.ok:
        return f"[bold green]VERDICT: yes[/bold green] – {count}, {verdict.seconds:.1f} s"
    return f"[bold red]VERDICT: no[/bold red] – {count}, {verdict.seconds:.1f} s"
