"""Arguments and options that several commands share."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from envpack.cli.console import Console
from envpack.project import PREFERENCES
from envpack.support.platforms import PLATFORMS, platform_name

if TYPE_CHECKING:
    from envpack.project import Project


class PlatformChoice(click.Choice[str]):
    """A platform, by conda's name or as ``linux-x86_64``."""

    def __init__(self) -> None:
        super().__init__(PLATFORMS)

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return super().convert(platform_name(value), param, ctx)


_WEEK = 7 * 24 * 3600  # seconds
_UNITS = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_SIZE = re.compile(r"([0-9]{1,15})([bkmg]?)", re.IGNORECASE)


class _Size(click.ParamType[int]):
    """A number of bytes, written as Docker's options are: a number and b, k, m or g."""

    name = "size"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        match = _SIZE.fullmatch(str(value))
        if match is None:
            self.fail(f"{value!r} is not a size such as 512m or 1g.", param, ctx)
        return int(match[1]) * _UNITS[match[2].lower()]


SIZE = _Size()

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
    help="Folder of the backends for one Python each. Default: that of envpack.toml, else backends beside the "
    "repository.",
)
_store = click.option(
    "--store",
    default="",
    metavar="URL",
    envvar="ENVPACK_STORE",
    help="Store that machines share: s3://, gs://, az:// or file://. It is looked into before anything is made. "
    "Default: that of envpack.toml; none for no store.",
)
on = click.option(
    "--on",
    default="",
    metavar="CLUSTER",
    help="Work on the workers of a dask cluster: local:2 for two on this machine, tcp://host:8786 or tls://host:8786 "
    "for those of a scheduler, with --store.",
)
_push = click.option(
    "--push/--no-push",
    default=None,
    help="Put into the store what it lacks. Default: what envpack.toml says, else not.",
)
toolchain = click.option(
    "--toolchain",
    type=click.Choice(["auto", "system", "zig"]),
    help="C++ compiler for the stub: this machine's, or the one in the ziglang wheel. Default: that of envpack.toml, "
    "else auto: the first of the two that exists.",
)
link_mode = click.option(
    "--link-mode",
    type=click.Choice(["auto", "clone", "hardlink", "copy"]),
    help="How files of environments get here: clones, hard links, or copies, which share nothing. Default: that of "
    "envpack.toml, else auto: the first of the three that the file system supports.",
)
glibc = click.option(
    "--glibc",
    default="",
    metavar="VERSION",
    help="Oldest glibc that the stub runs with; zig only. Default: 2.28 with zig, this machine's with its compiler.",
)
image = click.option(
    "--image", default="", metavar="IMAGE", help="Container image. Default: the release's official one."
)

timeout = click.option(
    "--timeout",
    type=click.IntRange(1, _WEEK),
    default=120,
    metavar="SECONDS",
    help="How long a model may take to load, and to answer a request. Default: 120.",
)

triton = click.option("--triton", default="", metavar="RELEASE", help="Triton release, for example 24.10.")

abi = click.option(
    "--abi",
    default="",
    metavar="RELEASE",
    help="For a release that envpack does not know yet: the release whose stub ABI it uses. Default: the newest.",
)


def python_preference(help_text: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add ``--python-preference`` to a command."""
    return click.option("--python-preference", type=click.Choice(PREFERENCES), default=None, help=help_text)


_RESOLVE = (
    click.option(
        "--python",
        default="",
        metavar="3.10",
        help="Python version. Default: the first of envpack.toml, the requirements, the lockfile, the environment that "
        "the model has, and the release's Python.",
    ),
    triton,
    abi,
    click.option(
        "--channel",
        "channels",
        multiple=True,
        metavar="URL",
        help="Conda channel; repeatable. Default: those of envpack.toml, the requirements or .condarc, else local: "
        "packages made from this machine's interpreters.",
    ),
    python_preference(
        "Where interpreters come from: system, and uv fetches one only if none of this machine fits; managed, first "
        "those that uv installs; or only one of the two. Default: that of envpack.toml, else system."
    ),
    click.option(
        "--platform",
        type=PlatformChoice(),
        default=None,
        callback=lambda _context, _option, value: value or "",
        help="Platform of the server. Default: that of envpack.toml, else this machine's.",
    ),
    click.option(
        "--allow-source",
        "sources",
        multiple=True,
        metavar="NAME",
        help="Build this pip package from source if it has no wheel, or :all: of them; repeatable. Default: wheels "
        "only.",
    ),
)


def debug(help_text: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add ``--debug`` with an optional port to a command."""
    port = click.IntRange(1, 65535)
    return click.option(
        "--debug", type=port, is_flag=False, flag_value=5678, default=None, metavar="[PORT]", help=help_text
    )


def resolve(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options that are the fields of `envpack.workflow.ResolveOptions`."""
    for option in reversed(_RESOLVE):
        command = option(command)
    return command


def store(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command ``--store`` and ``--push``."""
    return _store(_push(command))


def models(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the argument MODEL and the option ``--all``; see `model_names`."""
    argument = click.argument("models", nargs=-1, metavar="[MODEL]...", shell_complete=complete_model)
    every = click.option("--all", "every", is_flag=True, help="Every model of the repository, as without MODEL.")
    return argument(every(command))


def model_names(project: Project, names: Sequence[str], *, every: bool) -> tuple[str, ...]:
    """The folder names of the models on a command line; none stands for all."""
    from envpack.repository import model_name

    if every and names:
        raise click.UsageError("Name models, or give --all, not both.")
    return tuple(dict.fromkeys(model_name(project.repository, name) for name in names))


def chosen_models(project: Project, names: Sequence[str], *, every: bool) -> list[str]:
    """The folder names of the models to work on; the content of their folders may be wrong."""
    from envpack.repository import chosen_folders

    return list(chosen_folders(project.repository, model_names(project, names, every=every)))


def complete_model(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Names of models that begin as typed; nothing where the repository cannot be read."""
    from envpack.repository import looks_like_model

    try:
        folders = sorted(Path(context.params.get("repository") or ".").iterdir())
        return [folder.name for folder in folders if folder.name.startswith(incomplete) and looks_like_model(folder)]
    except OSError:
        return []


def as_json(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields of a result as values of JSON."""
    return {name: str(value) if isinstance(value, Path) else value for name, value in fields.items()}


def with_console(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command ``--json`` and ``--quiet``, and call it with its `Console`."""

    @click.option("--json", "as_json", is_flag=True, help="Print one JSON document on standard output.")
    @click.option("--quiet", "-q", is_flag=True, help="Print errors only.")
    @functools.wraps(command)
    def wrapped(*args: Any, as_json: bool, quiet: bool, **kwargs: Any) -> Any:
        console = Console(as_json=as_json, quiet=quiet)
        click.get_current_context().find_root().obj = console  # main() shows errors through it
        try:
            return command(*args, console=console, **kwargs)
        finally:
            console.close()

    return wrapped
