"""`envpack doctor`: what this machine has of what envpack can use."""

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

    from envpack.doctor import Observation

_STYLES = {"ok": "green", "warn": "yellow", "missing": "red"}


@click.command(short_help="Say what this machine has of what envpack can use.")
@click.option("--strict", is_flag=True, help="Exit with 1 if something is missing.")
@options.repository
@options.with_console
def command(repository: Path, console: Console, *, strict: bool) -> int:
    """Look at compilers, Pythons, channels, servers, containers, GPUs and disks, and say what to do where one lacks."""
    from envpack.doctor import examine
    from envpack.project import open_project

    console.begin("look at this machine")
    seen = examine(open_project(repository))
    missing = sum(one.state == "missing" for one in seen)
    warned = sum(one.state == "warn" for one in seen)
    console.end(f"{missing} missing, {warned} to know of")
    console.say(_table(seen), even_if_quiet=bool(missing))
    console.result({"ok": not missing, "checks": [dataclasses.asdict(one) for one in seen]})
    return 1 if strict and missing else 0


def _table(seen: Sequence[Observation]) -> Table:
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, show_header=False)
    for one in seen:
        fix = f"\n[bold]fix:[/bold] {escape(one.fix)}" if one.fix else ""
        style = _STYLES[one.state]
        table.add_row(f"[{style}]{one.state}[/{style}]", escape(one.name), f"{escape(one.what)}{fix}")
    return table
