"""Draws a matrix of stubs as a table and as JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from envpack.cli.console import Console, Failure, plain
from envpack.support.errors import EnvpackError

if TYPE_CHECKING:
    from envpack.workflow import Cell, CellPlan, CellResult

MissingPythons = Mapping[str, EnvpackError]


def show_matrix(cells: Sequence[Cell], missing: MissingPythons, console: Console) -> None:
    """Show the stubs of a matrix; the JSON document lists them under ``include``, as a GitHub matrix does."""
    from rich.table import Table

    table = Table("stub", "Python", "Triton", "platform", "compiled against", box=None)
    for cell in cells:
        table.add_row(*map(plain, _entry(cell).values()), plain(str(cell.target.library)))
    console.show(table)
    console.result({"include": [_entry(cell) for cell in cells], "missing": missing_entries(missing)})


def show_plans(plans: Sequence[CellPlan], missing: MissingPythons, console: Console) -> None:
    """Show what a run would do."""
    from rich.table import Table

    table = Table("stub", "", "", "to", box=None)
    for plan in plans:
        made = "cached" if plan.cached else "to be compiled"
        table.add_row(
            plan.cell.identifier, made, "up to date" if plan.placed else "to be placed", plain(str(plan.path))
        )
    console.show(table)
    console.result({"cells": [_plan_entry(plan) for plan in plans], "missing": missing_entries(missing)})


def result_entry(result: CellResult) -> dict[str, Any]:
    """The result of one stub as JSON."""
    stub, error = result.stub, result.error
    return _entry(result.cell) | {
        "stub": None if error else str(result.path.absolute()),
        "facts": dataclasses.asdict(stub.facts) if stub else None,
        "compiled": bool(stub and stub.fresh),
        "changed": result.changed,
        "seconds": round(stub.seconds, 3) if stub else None,
        "error": dataclasses.asdict(Failure.of(error)) if error else None,
    }


def missing_entries(missing: MissingPythons) -> list[dict[str, str]]:
    """The Pythons that ``--all-pythons`` did not find, as JSON."""
    return [
        {"python": minor, "kind": error.kind, "message": error.message, "hint": error.hint}
        for minor, error in missing.items()
    ]


def _plan_entry(plan: CellPlan) -> dict[str, Any]:
    return _entry(plan.cell) | {"stub": str(plan.path.absolute()), "cached": plan.cached, "placed": plan.placed}


def _entry(cell: Cell) -> dict[str, str]:
    return {
        "identifier": cell.identifier,
        "python": cell.target.minor,
        "triton": cell.release.name if cell.release else "all",
        "platform": cell.target.platform,
    }
