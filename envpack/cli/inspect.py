"""`envpack inspect`: what a stub is, from its file alone, and whether it fits."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from envpack.cli import options
from envpack.cli.console import Console

if TYPE_CHECKING:
    from rich.table import Table

    from envpack.preflight import Mismatch
    from envpack.stub import StubFacts


@click.command()
@click.argument("stub", type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "--environment",
    type=click.Path(path_type=Path, exists=True),
    help="Folder or archive of an environment: does the stub fit it? Of an archive nothing is unpacked.",
)
@click.option(
    "--triton", default="", metavar="RELEASE", help="Does the stub fit this Triton release and its official image?"
)
@options.with_console
def command(stub: Path, environment: Path | None, triton: str, console: Console) -> int:
    """Say what STUB serves and needs, and what of it does not fit. Nothing of it is run.

    The exit status is 1 if something does not fit.
    """
    from envpack.preflight import find_mismatches, host_of_image, read_environment_facts, read_stub_needs
    from envpack.releases import find_release
    from envpack.stub import inspect_stub

    release = find_release(triton) if triton else None
    facts = inspect_stub(stub)
    mismatches = find_mismatches(
        read_stub_needs(stub),
        read_environment_facts(environment.absolute()) if environment else None,
        release,
        host_of_image(release) if release else None,
    )
    console.say(_table(facts, mismatches))
    console.result(
        {
            "stub": str(stub.absolute()),
            "facts": dataclasses.asdict(facts),
            "mismatches": [dataclasses.asdict(mismatch) for mismatch in mismatches],
        }
    )
    return 1 if mismatches else 0


def _table(facts: StubFacts, mismatches: Sequence[Mismatch]) -> Table:
    from rich.table import Table

    table = Table(box=None, show_header=False)
    table.add_row("Triton", f"the wires of {', '.join(facts.epochs)}")
    table.add_row("Python", facts.python)
    table.add_row("NumPy", " and ".join(map(str, facts.numpy)))
    table.add_row("machine", f"{facts.machine}, glibc {facts.glibc} or newer")
    table.add_row("built", f"by envpack {facts.version} with {facts.compiler}")
    table.add_row("needs", "\n".join(facts.needs))
    for mismatch in mismatches:
        table.add_row(mismatch.kind, f"{mismatch.reason}\n{mismatch.fix}", style="red")
    return table
