"""`envpack channel`: interpreters of this machine as a conda channel."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from envpack.cli import options
from envpack.cli.console import Console, plain, table

if TYPE_CHECKING:
    from envpack.settings import Settings


@click.group(short_help="Make a conda channel of this machine's Pythons.")
def channel() -> None:
    """Make a conda channel of this machine's Pythons, to serve it, or to carry it to machines without a network."""


@channel.command("add-python")
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
    console.result(vars(added))
    minor = ".".join(added.package.version.split(".")[:2])
    console.next_step("envpack", "build", "--channel", added.channel, "--python", minor)


@channel.command("ls")
@click.argument("folder", type=click.Path(path_type=Path), required=False)
@options.with_console
def ls(folder: Path | None, console: Console) -> None:
    """List the packages of a channel FOLDER, by default envpack's own."""
    from envpack.workflow import list_channel

    address, packages = list_channel(folder)
    shown = table("package", "version", "build", "platform", "MB")
    for package in packages:
        names = map(plain, (package.name, package.version, package.build, package.subdir))
        shown.add_row(*names, f"{package.size / 1e6:.1f}")
    console.show(shown)
    console.show(plain(f"--channel {address}"))
    console.result({"channel": address, "packages": packages})
