"""Options that several commands have."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from envpack.cli.console import Console
from envpack.support.platforms import PLATFORMS, platform_name

if TYPE_CHECKING:
    from envpack.project import Project


class PlatformChoice(click.Choice[str]):
    """A platform, by conda's name or as ``linux-x86_64``."""

    def __init__(self) -> None:
        super().__init__(PLATFORMS)

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return super().convert(platform_name(value), param, ctx)


repository = click.option(
    "--repository",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path(),
    help="Model repository: the folder that holds the model folders. Default: the current folder.",
)
backends = click.option(
    "--backends",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIRECTORY",
    help="Folder of the backends for one Python each. Default: what envpack.toml says, else backends beside the "
    "repository.",
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


_CHOICE = (
    click.option("--python", default="", metavar="3.10", help="Python version. Default: what envpack.toml says."),
    triton,
    abi,
    click.option(
        "--channel",
        "channels",
        multiple=True,
        metavar="URL",
        help="Conda channel, may be repeated. Default: what envpack.toml, requirements or .condarc say; else local: "
        "packages made of this machine's interpreters.",
    ),
    click.option(
        "--platform",
        type=PlatformChoice(),
        default=None,
        callback=lambda _context, _option, value: value or "",
        help="What the server runs on. Default: what envpack.toml says, else what this machine is.",
    ),
    click.option(
        "--allow-source",
        "sources",
        multiple=True,
        metavar="NAME",
        help="Let this pip package be built from its source, or :all: of them. Default: wheels only.",
    ),
    click.option(
        "--engine",
        type=click.Choice(["rattler", "conda", "mamba", "micromamba"]),
        default="rattler",
        help="Who chooses conda packages: envpack's own engine, or a program of this machine. Default: rattler.",
    ),
)


def choice(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options that are the fields of `envpack.workflow.lock.Choice`."""
    for option in reversed(_CHOICE):
        command = option(command)
    return command


def chosen_models(project: Project, names: Sequence[str], *, every: bool) -> list[str]:
    """The folders of the models that a command line names, or of all; each is opened, so that a wrong one is told now.

    Raises:
        UsageError: neither or both were given.
        InputError: a model does not exist, its configuration is wrong, or there is none at all.
    """
    from envpack.repository import find_models, no_models, open_model

    if every == bool(names):
        raise click.UsageError("Name models, or give --all.")
    models = find_models(project.repository) if every else [open_model(project.repository / name) for name in names]
    if not models:
        raise no_models(project.repository)
    return [model.folder.name for model in models]


def as_json(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields of a result as JSON knows them."""
    return {name: str(value) if isinstance(value, Path) else value for name, value in fields.items()}


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
