"""How large environments are, for people: by package, and in each form."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table

    from envpack.archive import Format
    from envpack.workflow import BuiltModel

_MEGA = 1e6


def forms_line(name: str, forms: Sequence[Format]) -> str:
    """One line on what each form of an environment costs: bytes to ship, and how much longer it takes to load."""
    return f"    {name}: " + " · ".join(f"{one.form} {one.size / _MEGA:.0f} MB{_later(one)}" for one in forms)


def _later(form: Format) -> str:
    return f", loads about {form.unpack_seconds} s later" if form.unpacked else ""


def sizes_table(model: BuiltModel) -> Table:
    """What each package of a model's environment brings."""
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, title=escape(f"{model.name}: sizes in MB"), title_justify="left")
    table.add_column("package")
    for column in ("placed", "left out"):
        table.add_column(column, justify="right")
    for one in model.sizes:
        table.add_row(escape(f"{one.name} {one.version}"), f"{one.size / _MEGA:.1f}", f"{one.left_out / _MEGA:.1f}")
    total, left_out = sum(one.size for one in model.sizes), sum(one.left_out for one in model.sizes)
    table.add_row("all", f"{total / _MEGA:.1f}", f"{left_out / _MEGA:.1f}", style="bold")
    return table
