"""`envpack stub`: compile the stub for one Python, or a matrix of stubs."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from envpack.cli import options
from envpack.cli.cluster_view import ClusterWork, on_cluster
from envpack.cli.console import Console, Failure, plain
from envpack.support.errors import EnvpackError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from envpack.fleet import Task
    from envpack.settings import Settings
    from envpack.workflow import Cell, CellPlan, CellResult, PlannedStubs, WantedStubs


@click.command(cls=options.GroupedCommand)
@click.option(
    "--python",
    "pythons",
    multiple=True,
    metavar="3.8",
    help="Python version; the stub is compiled against an interpreter of this machine, or one that uv fetches. "
    "Repeatable.",
)
@click.option(
    "--prefix",
    "prefixes",
    multiple=True,
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="Compile against the Python of this environment. Repeatable.",
)
@click.option("--all-pythons", is_flag=True, help="One stub for each supported Python of this machine.")
@click.option(
    "--triton",
    "tritons",
    multiple=True,
    metavar="RELEASE",
    help="Triton release, for example 24.10. Repeatable: a stub for each. Default: one stub for all releases.",
)
@click.option(
    "--platform",
    "platforms",
    multiple=True,
    type=options.PlatformChoice(),
    help="Platform of the Pythons; another machine's platform takes --prefix. Repeatable.",
)
@click.option(
    "--only", multiple=True, metavar="GLOB", help="Select stubs by identifier, for example 'cp310-*'. Repeatable."
)
@click.option("--skip", multiple=True, metavar="GLOB", help="Leave stubs out by identifier. Repeatable.")
@click.option("--print-matrix", is_flag=True, help="List the stubs with their identifiers, and do nothing.")
@click.option("--dry-run", is_flag=True, help="List what would be compiled and where it would go, and do nothing.")
@click.option(
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path(),
    help="Folder for the stub, for example the model's. Default: the current folder.",
)
@click.option("--jobs", type=click.IntRange(min=1), help="How many compilers run at once. Default: one for each core.")
@options.settings("stub")
@options.with_console
def command(
    console: Console,
    *,
    said: Settings,
    print_matrix: bool,
    dry_run: bool,
    output: Path,
    jobs: int | None,
    **wanted: Any,
) -> int:
    """Compile the stub for one Python, from envpack's own sources.

    With several Pythons or releases, --all-pythons, --only or --skip: a matrix of stubs, each in a folder of its own.
    """
    from envpack.workflow import WantedStubs, plan_stubs

    stubs = WantedStubs(**wanted)
    _refuse(stubs, said)
    if not (print_matrix or dry_run):
        _require_output(output.absolute().parent if stubs.is_matrix else output)
    plan = plan_stubs(stubs, said, console)
    console.warned(*plan.warnings)
    for minor, error in plan.missing.items():
        console.detail(f"without Python {minor}: {error.message}")
    if print_matrix:
        show_matrix(plan.cells, plan.missing, console)
        return 0
    if dry_run:
        from envpack.workflow import plan_build

        folders = [output / cell.identifier if stubs.is_matrix else output for cell in plan.cells]
        plans = plan_build(plan.cells, folders)
        show_plans(plans, plan.missing, console)
        return 0
    done = _on_cluster(plan.cells, said, console)
    if stubs.is_matrix:
        return _build_matrix(plan, output, said, console, done, jobs=jobs or 0)
    _build_one(plan.cells[0], output, said, console, done, jobs=jobs or 0)
    return 0


def _refuse(stubs: WantedStubs, said: Settings) -> None:
    if not (stubs.pythons or stubs.prefixes or stubs.all_pythons):
        raise click.UsageError("Give --python or --prefix, or --all-pythons.")
    if said.abi and not stubs.tritons:
        raise click.UsageError("Give --triton with --abi.")
    if said.push and said.settled().store in ("", "none"):
        raise click.UsageError("Give --store with push.")
    if stubs.pythons and stubs.all_pythons:
        raise click.UsageError("Give either --python or --all-pythons.")


def _on_cluster(cells: Sequence[Cell], said: Settings, console: Console) -> ClusterWork:
    """Compile stubs on a cluster, so that what follows finds them in the cache or in the store."""

    def tasks() -> Sequence[Task]:
        from envpack.fleet import stub_tasks

        return stub_tasks(cells, said)

    done = on_cluster(said.settled().on, tasks, console)
    done.raise_first_error(console)
    return done


def _build_one(cell: Cell, output: Path, said: Settings, console: Console, done: ClusterWork, *, jobs: int) -> None:
    from envpack.workflow import build_one_stub

    placed = build_one_stub(cell, output, said, console, jobs=jobs)
    if placed.model:
        console.next_step("envpack", "verify", "--repository", str(placed.model.parent), placed.model.name)
    console.result(
        {
            "stub": str(placed.path),
            "facts": dataclasses.asdict(placed.stub.facts),
            "compiled": placed.stub.fresh,
            "changed": placed.changed,
            "seconds": round(placed.stub.seconds, 3),
        }
        | done.as_json()
    )


def _require_output(output: Path) -> None:
    from envpack.support.errors import InputError

    if not output.is_dir():
        raise InputError("output-missing", "this folder does not exist", "create it", str(output))


def _build_matrix(
    plan: PlannedStubs, output: Path, said: Settings, console: Console, done: ClusterWork, *, jobs: int
) -> int:
    from envpack.workflow import build_matrix, stub_store

    results = build_matrix(
        plan.cells,
        output,
        jobs=jobs,
        force=said.settled().force,
        progress=console,
        store=stub_store(said),
    )
    failures = [(result, Failure.of(result.error)) for result in results if result.error]
    for result, failure in failures:
        console.show_failure(dataclasses.replace(failure, message=f"{result.cell.identifier}: {failure.message}"))
    entries = {"cells": [result_entry(result) for result in results], "missing": missing_entries(plan.missing)}
    console.result(entries | done.as_json())
    return failures[0][1].exit_code if failures else 0


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
