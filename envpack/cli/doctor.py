"""`envpack doctor`: what envpack can use on this machine, and what is missing."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from envpack.cli import options
from envpack.cli.console import Console, plain

if TYPE_CHECKING:
    from rich.table import Table

    from envpack.workflow import Observation

_STYLES = {"ok": "green", "warn": "yellow", "missing": "red"}


@click.command(short_help="Check what envpack can use on this machine.")
@click.option("--strict", is_flag=True, help="Exit with 1 if something is missing.")
@options.repository
@options.with_console
def command(repository: Path, console: Console, *, strict: bool) -> int:
    """Check compilers, Pythons, channels, servers, containers, GPUs and disks, and print a fix for what is missing."""
    from envpack.settings import open_project
    from envpack.workflow import examine

    console.begin("check this machine")
    checks = examine(open_project(repository))
    missing = sum(check.state == "missing" for check in checks)
    warned = sum(check.state == "warn" for check in checks)
    console.end(f"{missing} missing, {warned} with a warning")
    console.show(_table(checks), even_if_quiet=bool(missing))
    console.result({"ok": not missing, "checks": [dataclasses.asdict(check) for check in checks]})
    return 1 if strict and missing else 0


def _table(checks: Sequence[Observation]) -> Table:
    from rich.table import Table

    table = Table(box=None, show_header=False)
    for check in checks:
        fix = f"\n[bold]fix:[/bold] {plain(check.fix)}" if check.fix else ""
        style = _STYLES[check.state]
        table.add_row(f"[{style}]{check.state}[/{style}]", plain(check.name), f"{plain(check.what)}{fix}")
    return table
