"""Options that several commands have."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from envpack.cli.console import Console

repository = click.option(
    "--repository",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path(),
    help="Model repository: the folder that holds the model folders. Default: the current folder.",
)
toolchain = click.option(
    "--toolchain",
    type=click.Choice(["auto", "system", "zig"]),
    default="auto",
    help="C++ compiler for the stub: this machine's, or the one in the ziglang wheel. Default: auto, in that order.",
)
glibc = click.option(
    "--glibc",
    default="",
    metavar="VERSION",
    help="Oldest glibc that the stub runs with; zig only. Default: 2.28 with zig, this machine's with its compiler.",
)
triton = click.option("--triton", default="", metavar="RELEASE", help="Triton release, for example 24.10.")

abi = click.option(
    "--abi",
    default="",
    metavar="RELEASE",
    help="For a release that envpack does not know yet: the one whose stub ABI it speaks. Default: the newest.",
)


def with_console(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command ``--json`` and ``--quiet``, and call it with the `Console` they ask for."""

    @click.option("--json", "as_json", is_flag=True, help="Print one JSON document on standard output.")
    @click.option("--quiet", "-q", is_flag=True, help="Say nothing but errors.")
    @functools.wraps(command)
    def wrapped(*args: Any, as_json: bool, quiet: bool, **kwargs: Any) -> Any:
        console = Console(as_json=as_json, quiet=quiet)
        click.get_current_context().find_root().obj = console  # main() shows errors through it
        return command(*args, console=console, **kwargs)

    return wrapped
