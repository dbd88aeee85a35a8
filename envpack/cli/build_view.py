"""Draws a build: what it would change, and how large environments are, by package and in each form."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table

    from envpack.archive import Format
    from envpack.workflow import BuiltModel, ModelPlan

_MEGA = 1e6


def plan_lines(plan: ModelPlan) -> Iterator[str]:
    """What a build of one model would change, and why."""
    from rich.markup import escape

    python = f": Python {plan.python} ({plan.python_source}), Triton {plan.release}" if plan.python else ""
    yield f"[bold]{escape(plan.name)}[/bold]{escape(python)}"
    for change in plan.changes:
        yield f"  would {escape(change.action)} [dim]({escape(change.reason)})[/dim]"
    if not plan.changes:
        yield "  up to date"


def forms_line(name: str, forms: Sequence[Format]) -> str:
    """The cost of each form of an environment: bytes to ship, and how much longer it takes to load."""
    return f"    {name}: " + " · ".join(f"{form.form} {form.size / _MEGA:.0f} MB{_later(form)}" for form in forms)


def _later(form: Format) -> str:
    return f", loads about {form.unpack_seconds} s later" if form.unpacked else ""


def sizes_table(model: BuiltModel) -> Table:
    """The size of each package of a model's environment."""
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, title=escape(f"{model.name}: sizes in MB"), title_justify="left")
    table.add_column("package")
    for column in ("placed", "left out"):
        table.add_column(column, justify="right")
    for package in model.sizes:
        name = escape(f"{package.name} {package.version}")
        table.add_row(name, f"{package.size / _MEGA:.1f}", f"{package.left_out / _MEGA:.1f}")
    total, left_out = sum(package.size for package in model.sizes), sum(package.left_out for package in model.sizes)
    table.add_row("all", f"{total / _MEGA:.1f}", f"{left_out / _MEGA:.1f}", style="bold")
    return table
