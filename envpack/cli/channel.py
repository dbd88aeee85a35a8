"""`envpack channel`: interpreters of this machine as a conda channel."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from envpack.cli import options
from envpack.cli.console import Console, plain

if TYPE_CHECKING:
    from rich.table import Table

    from envpack.settings import Settings
    from envpack.workflow import ChannelPackage


@click.group(short_help="Make a conda channel of this machine's Pythons.")
def command() -> None:
    """Make a conda channel of this machine's Pythons, to serve it, or to carry it to machines without a network."""


@command.command("add-python")
@click.argument("python", metavar="3.8")
@click.option(
    "--from",
    "place",
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="The interpreter, or the folder that it was installed to. Default: the best one on this machine.",
)
@click.option(
    "--to",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="FOLDER",
    help="The channel. Default: channels/own in envpack's data folder.",
)
@options.settings("channel-add-python")
@options.with_console
def add(
    python: str,
    place: Path | None,
    folder: Path | None,
    said: Settings,
    console: Console,
) -> None:
    """Put a Python of this machine into a channel folder, as a conda package that works anywhere."""
    from envpack.workflow import add_python

    added = add_python(python, place, folder, said, console)
    console.show(plain(f"--channel {added.channel}"))
    console.result(dataclasses.asdict(added))
    minor = ".".join(added.package.version.split(".")[:2])
    console.next_step("envpack", "build", "--channel", added.channel, "--python", minor)


@command.command("ls")
@click.argument("folder", type=click.Path(path_type=Path), required=False)
@options.with_console
def ls(folder: Path | None, console: Console) -> None:
    """List the packages of a channel FOLDER, by default envpack's own."""
    from envpack.workflow import list_channel

    address, packages = list_channel(folder)
    console.show(_table(packages))
    console.show(plain(f"--channel {address}"))
    console.result({"channel": address, "packages": [dataclasses.asdict(package) for package in packages]})


def _table(packages: Iterable[ChannelPackage]) -> Table:
    from rich.table import Table

    table = Table("package", "version", "build", "platform", "MB", box=None)
    for package in packages:
        table.add_row(
            *map(plain, (package.name, package.version, package.build, package.subdir)), f"{package.size / 1e6:.1f}"
        )
    return table
