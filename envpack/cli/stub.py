"""`envpack stub`: compile the stub for one Python, or a matrix of stubs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from envpack.cli import options
from envpack.cli.console import Console, Failure, plain, table
from envpack.cli.each_model import ClusterWork, on_cluster
from envpack.support.errors import EnvpackError

if TYPE_CHECKING:
    from envpack.fleet.tasks import Task
    from envpack.settings.table import Settings
    from envpack.workflow.stubs import Cell, CellPlan, CellResult, PlannedStubs, WantedStubs


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
    type=options.FOLDER,
    default=Path(),
    help="Folder for the stub, for example the model's. Default: the current folder.",
)
@click.option("--jobs", type=click.IntRange(min=1), help="How many compilers run at once. Default: one for each core.")
@options.settings("stub")
@options.with_console
def stub(
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
    from envpack.workflow.stubs import WantedStubs, output_missing, plan_build, plan_stubs

    stubs = WantedStubs(**wanted)
    _refuse(stubs, said)
    folder = output.absolute().parent if stubs.is_matrix else output
    if not (print_matrix or dry_run or folder.is_dir()):
        raise output_missing(folder)
    plan = plan_stubs(stubs, said, console)
    console.warned(*plan.warnings)
    for minor, error in plan.missing.items():
        console.detail(f"without Python {minor}: {error.message}")
    if print_matrix:
        _show_matrix(plan, console)
        return 0
    if dry_run:
        folders = [output / cell.identifier if stubs.is_matrix else output for cell in plan.cells]
        _show_plans(plan_build(plan.cells, folders), plan.missing, console)
        return 0

    def tasks() -> Sequence[Task]:
        from envpack.fleet.orders import stub_tasks

        return stub_tasks(plan.cells, said)

    done = on_cluster(said.settled().on, tasks, console)  # what follows finds them in the cache or in the store
    done.raise_first_error(console)
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


def _build_one(cell: Cell, output: Path, said: Settings, console: Console, done: ClusterWork, *, jobs: int) -> None:
    from envpack.workflow.stubs import build_one_stub

    placed = build_one_stub(cell, output, said, console, jobs=jobs)
    if placed.model:
        console.next_step("envpack", "verify", "--repository", str(placed.model.parent), placed.model.name)
    document = {
        "stub": placed.path,
        "facts": placed.stub.facts,
        "compiled": placed.stub.fresh,
        "changed": placed.changed,
        "seconds": round(placed.stub.seconds, 3),
    }
    console.result(document | done.as_json())


def _build_matrix(
    plan: PlannedStubs, output: Path, said: Settings, console: Console, done: ClusterWork, *, jobs: int
) -> int:
    from envpack.workflow.stubs import build_matrix, stub_store

    results = build_matrix(
        plan.cells,
        output,
        jobs=jobs,
        force=said.settled().force,
        progress=console,
        store=stub_store(said),
    )
    failures = {result.cell.identifier: Failure.of(result.error) for result in results if result.error}
    for identifier, failure in failures.items():
        console.show_failure(failure, of=identifier)
    cells = [_result(result, failures.get(result.cell.identifier)) for result in results]
    console.result({"cells": cells, "missing": _missing(plan.missing)} | done.as_json())
    return next((failure.exit_code for failure in failures.values()), 0)


def _show_matrix(plan: PlannedStubs, console: Console) -> None:
    """Show the stubs of a matrix; the JSON document lists them under ``include``, as a GitHub matrix does."""
    shown = table("stub", "Python", "Triton", "platform", "compiled against")
    for cell in plan.cells:
        shown.add_row(*map(plain, _entry(cell).values()), plain(str(cell.target.library)))
    console.show(shown)
    console.result({"include": list(map(_entry, plan.cells)), "missing": _missing(plan.missing)})


def _show_plans(plans: Sequence[CellPlan], missing: Mapping[str, EnvpackError], console: Console) -> None:
    shown = table("stub", "", "", "to")
    for plan in plans:
        made = "cached" if plan.cached else "to be compiled"
        placed = "up to date" if plan.placed else "to be placed"
        shown.add_row(plan.cell.identifier, made, placed, plain(str(plan.path)))
    console.show(shown)
    cells = [
        _entry(plan.cell) | {"stub": plan.path.absolute(), "cached": plan.cached, "placed": plan.placed}
        for plan in plans
    ]
    console.result({"cells": cells, "missing": _missing(missing)})


def _result(result: CellResult, failure: Failure | None) -> dict[str, Any]:
    stub = result.stub
    return _entry(result.cell) | {
        "stub": None if failure else result.path.absolute(),
        "facts": stub.facts if stub else None,
        "compiled": bool(stub and stub.fresh),
        "changed": result.changed,
        "seconds": round(stub.seconds, 3) if stub else None,
        "error": failure,
    }


def _missing(missing: Mapping[str, EnvpackError]) -> list[dict[str, str]]:
    return [
        {"python": minor, "kind": error.kind, "message": error.message, "hint": error.hint}
        for minor, error in missing.items()
    ]


def _entry(cell: Cell) -> dict[str, Any]:
    return {
        "identifier": cell.identifier,
        "python": cell.target.minor,
        "triton": cell.release.name if cell.release else "all",
        "platform": cell.target.platform,
    }
