"""Draws a verdict on the terminal."""

from __future__ import annotations

import collections
from collections.abc import Iterator
from typing import TYPE_CHECKING

from envpack.cli.console import plain

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from envpack.workflow import ModelVerdict, Verdict

_WORDS = {"ok": "passed", "failed": "failed", "unchecked": "not checked", "warning": "warned", "skipped": "left out"}
_NAME_WIDTH = 40  # columns of a terminal that the names of models get, if they are that long


def draw(verdict: Verdict) -> Iterator[RenderableType]:
    """The parts of the picture, top to bottom: table of models, failures, last line."""
    yield _table(verdict)
    for model in verdict.models:
        yield from _failure(model)
    yield from _warnings(verdict)
    yield from _server_checks(verdict)
    for leftover in verdict.leftovers:
        yield f"[red]left behind:[/red] {plain(leftover)}"
    if verdict.answer != "yes" and verdict.log:
        yield f"[dim]the server's log: {plain(verdict.log)}[/dim]"
    yield _last_line(verdict)


def _table(verdict: Verdict) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(
        title=plain(f"Triton {verdict.release or '?'} (server {verdict.server}), {_where(verdict)}"),
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


def _where(verdict: Verdict) -> str:
    return f"{verdict.runtime}: {verdict.image}" if verdict.image else "a process of this machine"


def _warnings(verdict: Verdict) -> Iterator[RenderableType]:
    """Warnings; a fix that several models share stands once, below them."""
    by_advice: dict[str, list[str]] = {}
    of_models = [(f"{model.name}: {check.id}", check) for model in verdict.models for check in model.checks]
    for name, check in (*of_models, *((check.id, check) for check in verdict.checks)):
        if check.status in {"warning", "unchecked"}:
            word = ": not checked" if check.status == "unchecked" else ""
            by_advice.setdefault(check.fix, []).append(f"[yellow]{plain(name)}{word}:[/yellow] {plain(check.evidence)}")
    for advice, lines in by_advice.items():
        yield from lines
        yield f"  [dim]{plain(advice)}[/dim]"


def _server_checks(verdict: Verdict) -> Iterator[RenderableType]:

    for check in verdict.checks:
        if not check.ok:
            yield f"[red]{check.id}:[/red] {plain(check.evidence)}"
            yield f"[bold]  fix:[/bold] {plain(check.fix)}"


def _failure(model: ModelVerdict) -> Iterator[RenderableType]:

    reason = model.failure.reason if model.failure else ""
    for check in model.checks:
        if not check.ok and check.evidence != reason:
            yield f"[red]{plain(model.name)}: {check.id}:[/red] {plain(check.evidence)}"
            if check.fix:
                yield f"[bold]  fix:[/bold] {plain(check.fix)}"
    if model.failure is None:
        return
    yield f"[red]{plain(model.name)}: {model.failure.kind}:[/red] {plain(model.failure.reason)}"
    for line in model.failure.details:
        yield f"    {plain(line)}"
    if model.failure.fix:
        yield f"[bold]  fix:[/bold] {plain(model.failure.fix)}"


def _last_line(verdict: Verdict) -> str:
    count = verdict.count
    if verdict.kept:
        count = f"{count}, left running at {plain(verdict.kept)}"
    elif verdict.answer != "no":
        count = f"{count}, nothing left behind"
    color = {"yes": "green", "no": "red", "yes as far as checked": "yellow"}[verdict.answer]
    return f"[bold {color}]VERDICT: {verdict.answer}[/bold {color}] – {count}, {verdict.seconds:.1f} s"
