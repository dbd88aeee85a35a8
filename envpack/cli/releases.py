"""`envpack releases`: the Triton releases that envpack knows, and how they differ."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from envpack.cli import options
from envpack.cli.console import Console

if TYPE_CHECKING:
    from rich.table import Table

    from envpack.settings import Release

_HEADS = ("Triton", "server", "stub ABI", "Python", "NumPy 2", "glibc", "environments", "activate", "server in a wheel")


@click.command(short_help="List the Triton releases that envpack knows.")
@options.with_console
def command(console: Console) -> None:
    """List the Triton releases that envpack knows, with what a stub and an execution environment depend on."""
    from envpack.settings import DEFAULT_RELEASE, all_releases

    releases = all_releases().values()
    console.show(_table(releases))
    console.result({"default": DEFAULT_RELEASE, "releases": [dataclasses.asdict(release) for release in releases]})


def _table(releases: Iterable[Release]) -> Table:
    from rich.table import Table

    table = Table(*_HEADS, box=None)
    for release in releases:
        table.add_row(
            release.name,
            release.server,
            release.stub_abi,
            release.python,
            "yes" if release.numpy2 else "no",
            release.glibc,
            "folder, archive" if release.takes_folders else "archive",
            "run" if release.runs_activate else "not run",
            f"nvidia-pytriton {release.wheel}" if release.wheel else "",
        )
    return table
