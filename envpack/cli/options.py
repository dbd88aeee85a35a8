"""Arguments and options that several commands share; those of settings are made from their table."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Container, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from envpack.cli.console import SAID_REPOSITORY, Console
from envpack.settings.fields import BadValueError, Field
from envpack.settings.table import FIELDS, Settings
from envpack.support.platforms import PLATFORMS, platform_name

if TYPE_CHECKING:
    from envpack.workflow.verify import Trust

Command = Callable[..., Any]
OTHER = "Other"
FILE = click.Path(path_type=Path, dir_okay=False)
FOLDER = click.Path(path_type=Path, file_okay=False)
PLACE = click.Path(path_type=Path)  # either


class GroupedCommand(click.Command):
    """A command whose help lists the everyday options first, and the others below headings."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        groups: dict[str, list[tuple[str, str]]] = {"Options": []}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None and isinstance(parameter, click.Option):
                group = OTHER if parameter.name in _OTHERS else getattr(parameter, "group", "Options")
                groups.setdefault(group, []).append(record)
        groups[OTHER] = groups.pop(OTHER, [])
        for name, records in groups.items():
            if records:
                with formatter.section(name):
                    formatter.write_dl(records, col_max=26)


class GroupedOption(click.Option):
    """An option with a heading in the help."""

    def __init__(self, *words: Any, group: str = "Options", **more: Any) -> None:
        super().__init__(*words, **more)
        self.group = group


_OTHERS = {"as_json", "quiet", "help", "assignments"}


class PlatformChoice(click.Choice[str]):
    """A platform, by conda's name or as ``linux-x86_64``."""

    def __init__(self) -> None:
        super().__init__(PLATFORMS)

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return super().convert(platform_name(value), param, ctx)


class Days(click.FloatRange):
    """A number of days that is neither infinite nor NaN, with which no time can be compared."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        days = super().convert(value, param, ctx)
        return days if math.isfinite(days) else self.fail(f"{value!r} is no number of days.", param, ctx)


class _KindType(click.types.StringParamType):
    def __init__(self, field: Field) -> None:
        self.name, self._field = field.name, field

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        del param
        try:
            return self._field.read_word(value, self._field.flag)
        except BadValueError as fault:
            raise click.UsageError(f"{fault}: {fault.hint}.", ctx) from fault


def settings(command: str) -> Callable[[Command], Command]:
    """Give a command the options of its settings and ``--set``; it receives what they say as ``said``."""
    own = [field for field in FIELDS.values() if command in field.has_option]
    has_set = any(command in field.has_set for field in FIELDS.values())

    def decorate(function: Command) -> Command:
        @functools.wraps(function)
        def with_settings(*args: Any, assignments: Sequence[str] = (), **given: Any) -> Any:
            said = {name: value for name, value in _words(given, own).items() if value not in (None, (), "")}
            source = click.get_current_context().get_parameter_source
            typed = [name for name in said if source(name) is ParameterSource.COMMANDLINE]  # not from a variable
            said |= _assigned(assignments, command, typed)
            return function(*args, said=Settings(**said), **given)

        wrapped: Command = with_settings
        if has_set:
            wrapped = click.option(
                "--set",
                "assignments",
                multiple=True,
                metavar="KEY=VALUE",
                help="Any other setting of envpack.toml; repeatable.",
            )(wrapped)
        for field in reversed(own):
            wrapped = _option(field)(wrapped)
        return wrapped

    return decorate


def _words(given: dict[str, Any], own: Sequence[Field]) -> dict[str, Any]:
    """The values of settings, taken from those of all options; an empty word, as of ``"$UNSET"``, says nothing."""
    values = {field.name: given.pop(field.name) for field in own}
    return {name: tuple(filter(None, value)) if isinstance(value, tuple) else value for name, value in values.items()}


def _option(field: Field) -> Callable[[Command], Command]:
    kind = field.kind
    text = f"{field.help} Default: {field.otherwise}." if field.otherwise else field.help
    more: dict[str, Any] = {"help": text, "group": field.group, "cls": GroupedOption, "default": None}
    if kind.form == "flag":
        return click.option(field.flag, field.name, is_flag=True, **more)
    if kind.form == "texts":
        more |= {"multiple": True, "default": ()}
    if kind.metavar:
        more["metavar"] = kind.metavar
    if field.name == "store":
        more["envvar"] = "ENVPACK_STORE"
    return click.option(field.flag, field.name, type=_click_type(field), **more)


def _click_type(field: Field) -> click.ParamType[Any]:
    kind = field.kind
    match kind.form:
        case "choice":
            return PlatformChoice() if kind.values == PLATFORMS else click.Choice(kind.values)
        case "number" | "size" | "text":
            return _KindType(field)
        case "place":
            return click.Path(path_type=Path, file_okay=not kind.is_folder)
    return click.STRING


def _assigned(assignments: Iterable[str], command: str, said: Container[str]) -> dict[str, Any]:
    """What ``--set`` says; what an option says as well is refused."""
    found: dict[str, Any] = {}
    for assignment in assignments:
        key, equals, word = assignment.partition("=")
        name = key.strip().replace("-", "_")
        field = FIELDS.get(name)
        if not equals:
            raise click.UsageError(f"--set takes KEY=VALUE, not {assignment!r}.")
        if field is None or not field.concerns(command):
            raise click.UsageError(_unknown(name, command))
        if name in said or (name in found and field.kind.form != "texts"):
            raise click.UsageError(f"{name} is said twice.")
        try:
            value = field.read_word(word, "--set")
        except BadValueError as fault:
            raise click.UsageError(f"{fault}: {fault.hint}.") from fault
        found[name] = (*found.get(name, ()), *value) if field.kind.form == "texts" else value
    return found


def _unknown(name: str, command: str) -> str:
    import difflib

    if name in FIELDS:
        return f"envpack {command.replace('-', ' ')} has no setting {name}."
    known = [field.name for field in FIELDS.values() if field.concerns(command)]
    near = difflib.get_close_matches(name, known, n=1)
    meant = f" Did you mean {near[0]}?" if near else f" Known: {', '.join(sorted(known))}."
    return f"there is no setting {name!r}.{meant}"


repository = click.option(
    "--repository", type=FOLDER, default=Path(), help="Folder of the model folders. Default: this one."
)


def signature(help_text: str) -> Callable[[Command], Command]:
    """Add ``--require-signature`` and ``--max-age`` to a command, which `trust_of` reads."""
    days = Days(min=0, min_open=True)
    age = click.option("--max-age", type=days, metavar="DAYS", help="Refuse what was signed longer ago.")
    key = click.option(
        "--require-signature",
        type=FILE,
        multiple=True,
        metavar="KEY",
        help=f"{help_text} Repeatable: one of several keys is enough.",
    )
    return lambda command: key(age(command))


def trust_of(require_signature: Sequence[Path], max_age: float | None) -> Trust | None:
    if not require_signature:
        if max_age is not None:
            raise click.UsageError("--max-age is for --require-signature.")
        return None
    from envpack.workflow.verify import read_trust

    return read_trust(require_signature, max_age)


def debug(help_text: str) -> Callable[[Command], Command]:
    port = click.IntRange(1, 65535)
    return click.option(
        "--debug", type=port, is_flag=False, flag_value=5678, default=None, metavar="[PORT]", help=help_text
    )


def models(command: Command) -> Command:
    """Give a command the argument MODEL, see `envpack.workflow.project.model_names`."""
    return click.argument("models", nargs=-1, metavar="[MODEL]...", shell_complete=complete_model)(command)


def complete_model(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    from envpack.workflow.project import complete_names

    return complete_names(Path(context.params.get("repository") or "."), incomplete)


def with_console(command: Command) -> Command:
    """Give a command ``--json`` and ``--quiet``, and call it with its `Console`."""

    @click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
    @click.option("--quiet", "-q", is_flag=True, help="Print errors only.")
    @functools.wraps(command)
    def wrapped(*args: Any, as_json: bool, quiet: bool, **kwargs: Any) -> Any:
        console = Console(as_json=as_json, quiet=quiet)
        click.get_current_context().find_root().obj = console  # main() shows errors through it
        SAID_REPOSITORY.set(kwargs.get("repository") or Path())
        try:
            return command(*args, console=console, **kwargs)
        finally:
            console.close()

    return wrapped
