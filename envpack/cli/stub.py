"""`envpack stub`: compile the stub for one Python, or a matrix of stubs."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from envpack.cli import options
from envpack.cli.cluster_view import ClusterWork, on_cluster
from envpack.cli.console import Console, Failure
from envpack.cli.matrix_view import MissingPythons, missing_entries, result_entry, show_matrix, show_plans

if TYPE_CHECKING:
    from collections.abc import Sequence

    from envpack.fleet import Task
    from envpack.settings import Settings
    from envpack.store import SharedStore
    from envpack.stub import Cell, Stub


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
def command(console: Console, *, said: Settings, **given: Any) -> int:
    """Compile the stub for one Python, from envpack's own sources.

    With several Pythons or releases, --all-pythons, --only or --skip: a matrix of stubs, each in a folder of its own.
    """
    request = _StubRequest(settled=said.settled(), **given)
    if not (request.pythons or request.prefixes or request.all_pythons):
        raise click.UsageError("Give --python or --prefix, or --all-pythons.")
    if said.abi and not request.tritons:
        raise click.UsageError("Give --triton with --abi.")
    if said.push and request.settled.store in ("", "none"):
        raise click.UsageError("Give --store with push.")
    if request.pythons and request.all_pythons:
        raise click.UsageError("Give either --python or --all-pythons.")
    if not (request.print_matrix or request.dry_run):
        _require_output(request.output.absolute().parent if request.is_matrix else request.output)
    cells, missing = _plan(request, console)
    if request.print_matrix:
        show_matrix(cells, missing, console)
    elif request.dry_run:
        _dry_run(cells, missing, request, console)
    else:
        done = _on_cluster(cells, request, console)
        if request.is_matrix:
            return _build_matrix(cells, missing, request, console, done)
        _build_one(cells[0], request, console, done)
    return 0


@dataclasses.dataclass(frozen=True)
class _StubRequest:
    """The command line."""

    pythons: tuple[str, ...]
    prefixes: tuple[Path, ...]
    all_pythons: bool
    tritons: tuple[str, ...]
    platforms: tuple[str, ...]
    only: tuple[str, ...]
    skip: tuple[str, ...]
    print_matrix: bool
    dry_run: bool
    output: Path
    jobs: int | None
    settled: Settings

    @property
    def shared(self) -> SharedStore | None:
        """The store that machines share, if one is named."""
        from envpack.store import open_store

        return (
            open_store(self.settled.store, push=self.settled.push) if self.settled.store not in ("", "none") else None
        )

    @property
    def is_matrix(self) -> bool:
        """Whether stubs get folders of their own; the command line alone decides, whatever is on the machine."""
        several = len(self.pythons) + len(self.prefixes) > 1 or len(self.tritons) > 1
        return several or self.all_pythons or bool(self.only or self.skip)


def _plan(request: _StubRequest, console: Console) -> tuple[tuple[Cell, ...], MissingPythons]:
    """The stubs to compile, and why some Pythons are not among them."""
    from envpack.conda import check_minor
    from envpack.releases import find_release
    from envpack.stub import find_pythons, plan_matrix, target_from_interpreter, target_from_prefix

    releases = [find_release(name, abi=request.settled.abi or None) for name in request.tritons]
    for release in releases:
        console.warned(release.warning)
    for minor in request.pythons:
        check_minor(minor)  # all of them, before any is fetched
    missing: MissingPythons = {}
    preference = request.settled.python_preference
    targets = [target_from_interpreter(minor, preference=preference, progress=console) for minor in request.pythons]
    if request.all_pythons:
        found = find_pythons(preference)
        targets, missing = list(found.targets), found.missing
    targets += [target_from_prefix(prefix.absolute()) for prefix in request.prefixes]
    for minor, error in missing.items():
        console.detail(f"without Python {minor}: {error.message}")
    cells = plan_matrix(targets, releases, platforms=request.platforms, only=request.only, skip=request.skip)
    return cells, missing


def _on_cluster(cells: Sequence[Cell], request: _StubRequest, console: Console) -> ClusterWork:
    """Compile stubs on a cluster, so that what follows finds them in the cache or in the store."""

    def tasks() -> Sequence[Task]:
        from envpack.fleet import stub_tasks

        settled = request.settled
        return stub_tasks(
            cells, abi=settled.abi, toolchain=settled.toolchain, glibc=settled.glibc, store=request.shared
        )

    done = on_cluster(request.settled.on, tasks, console)
    done.raise_first_error(console)
    return done


def _build_one(cell: Cell, request: _StubRequest, console: Console, done: ClusterWork) -> None:
    from envpack.repository import looks_like_model
    from envpack.stub import STUB_NAME
    from envpack.support.entry_locks import kept
    from envpack.workflow import place, stub_for

    output, jobs = request.output, request.jobs or 0
    shared = request.shared

    def built() -> Stub:
        return stub_for(
            cell.target,
            cell.releases,
            toolchain=request.settled.toolchain,
            glibc=request.settled.glibc,
            jobs=jobs,
            progress=console,
            store=shared,
        )

    with kept(built, lambda stub: stub.path.parent) as stub:
        console.begin(f"place {output / STUB_NAME}")
        placed = place(cell, stub, output, force=request.settled.force)
    console.end(f"needs {stub.facts.libpython}, glibc {stub.facts.glibc}" if placed else "up to date")
    if looks_like_model(output.absolute()):
        model = output.absolute()
        console.next_step("envpack", "verify", "--repository", str(model.parent), model.name)
    console.result(
        {
            "stub": str((output / STUB_NAME).absolute()),
            "facts": dataclasses.asdict(stub.facts),
            "compiled": stub.fresh,
            "changed": placed,
            "seconds": round(stub.seconds, 3),
        }
        | done.as_json()
    )


def _require_output(output: Path) -> None:
    from envpack.support.errors import InputError

    if not output.is_dir():
        raise InputError("this folder does not exist", kind="output-missing", where=str(output), hint="create it")


def _build_matrix(
    cells: tuple[Cell, ...], missing: MissingPythons, request: _StubRequest, console: Console, done: ClusterWork
) -> int:
    from envpack.workflow import build_matrix

    results = build_matrix(
        cells,
        request.output,
        toolchain=request.settled.toolchain,
        glibc=request.settled.glibc,
        jobs=request.jobs or 0,
        force=request.settled.force,
        progress=console,
        store=request.shared,
    )
    failures = [(result, Failure.of(result.error)) for result in results if result.error]
    for result, failure in failures:
        console.show_failure(dataclasses.replace(failure, message=f"{result.cell.identifier}: {failure.message}"))
    entries = {"cells": [result_entry(result) for result in results], "missing": missing_entries(missing)}
    console.result(entries | done.as_json())
    return failures[0][1].exit_code if failures else 0


def _dry_run(cells: tuple[Cell, ...], missing: MissingPythons, request: _StubRequest, console: Console) -> None:
    from envpack.workflow import plan_build

    folders = [request.output / cell.identifier if request.is_matrix else request.output for cell in cells]
    plans = plan_build(cells, folders, toolchain=request.settled.toolchain, glibc=request.settled.glibc)
    show_plans(plans, missing, console)
