"""`envpack inspect`: what a stub is, from its file alone."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

import click

from envpack.cli import options
from envpack.cli.console import Console

if TYPE_CHECKING:
    from rich.table import Table

    from envpack.stub import StubFacts


@click.command()
@click.argument("stub", type=click.Path(path_type=Path, dir_okay=False))
@options.with_console
def command(stub: Path, console: Console) -> None:
    """Say what STUB serves and needs. Nothing of it is run."""
    from envpack.stub import inspect_stub

    facts = inspect_stub(stub)
    console.say(_table(facts))
    console.result({"stub": str(stub.absolute()), "facts": dataclasses.asdict(facts)})


def _table(facts: StubFacts) -> Table:
    from rich.table import Table

    table = Table(box=None, show_header=False)
    table.add_row("Triton", f"the wires of {', '.join(facts.epochs)}")
    table.add_row("Python", facts.python)
    table.add_row("NumPy", " and ".join(map(str, facts.numpy)))
    table.add_row("machine", f"{facts.machine}, glibc {facts.glibc} or newer")
    table.add_row("built", f"by envpack {facts.version} with {facts.compiler}")
    table.add_row("needs", "\n".join(facts.needs))
    return table
