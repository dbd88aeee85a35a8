"""The parts of the documentation that are generated from the code, as Markdown."""

from __future__ import annotations

import importlib
import inspect
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from ci.docs import faults, settings
from ci.recipe_records import records
from envpack.cli.main import cli
from envpack.requirements.format import all_formats
from envpack.settings.examples import example_titles
from envpack.settings.releases import Release, all_releases
from envpack.verification.verdict import CHECKS

CHECKOUT = Path(__file__).resolve().parents[2]
_MARK = re.compile(r"^<!-- generated: ([a-z-]+)(?: (\S+))? -->$", re.MULTILINE)
_EVERYWHERE = {"--json", "--quiet", "--help"}


def expand(text: str) -> str:
    """A page with each mark `<!-- generated: WHAT ARGUMENT -->` replaced.

    Raises:
        KeyError: a mark names something that is not generated.
    """
    return _MARK.sub(lambda mark: GENERATED[mark[1]](mark[2] or ""), text)


def marks(text: str) -> list[tuple[str, str]]:
    """What the marks of a page name, with their arguments."""
    return [(mark[1], mark[2] or "") for mark in _MARK.finditer(text)]


def commands() -> dict[str, click.Command]:
    """Every command by its name; those of a group have two words."""
    return dict(_commands(cli, click.Context(cli, info_name="envpack"), ""))


def _commands(group: click.Group, context: click.Context, prefix: str) -> Iterator[tuple[str, click.Command]]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from _commands(command, context, f"{prefix}{name} ")
        elif command is not None:
            yield f"{prefix}{name}", command


def command_list(_: str) -> str:
    """A table of all commands."""
    rows = [
        f"| [`envpack {name}`](#envpack-{name.partition(' ')[0]}) | {_cell(command.get_short_help_str(200))} |"
        for name, command in commands().items()
    ]
    return "\n".join(["| command | |", "|---|---|", *rows])


def command_page(name: str) -> str:
    """Usage, help and options of a command, or of each command of a group."""
    found = {full: command for full, command in commands().items() if full.partition(" ")[0] == name}
    if not found:
        raise KeyError(name)
    return "\n\n".join(_command(full, command, several=len(found) > 1) for full, command in found.items())


def _command(name: str, command: click.Command, *, several: bool) -> str:
    context = click.Context(command, info_name=f"envpack {name}")
    usage = " ".join(command.collect_usage_pieces(context))
    head = [f"### envpack {name}"] if several else []
    help_text = inspect.cleandoc(command.help or "").replace("\b\n", "")
    text = [_in_code(" ".join(paragraph.split())) for paragraph in help_text.split("\n\n")]
    rows = [_option_row(option) for option in command.params if isinstance(option, click.Option)]
    rows = [row for row in rows if row]
    table = ["\n".join(["| option | default | |", "|---|---|---|", *rows])] if rows else []
    others = settings.set_only(name.replace(" ", "-"))
    parts = [*head, f"```text\nenvpack {name} {usage}\n```", *text, *table, *([others] if others else [])]
    return "\n\n".join(parts)


def _option_row(option: click.Option) -> str:
    if _EVERYWHERE & set(option.opts) or option.hidden:
        return ""
    names = ", ".join(f"`{name}`" for name in sorted(option.opts, key=len, reverse=True))
    value = "" if option.is_flag or option.count else f" `{_value(option)}`"
    text, _, default = (option.help or "").partition(" Default: ")
    return f"| {names}{value} | {_cell(default.removesuffix('.'))} | {_cell(text)} |"


def _value(option: click.Option) -> str:
    if isinstance(option.type, click.Choice):
        return "|".join(map(str, option.type.choices)).replace("|", "\\|")
    return option.metavar or ("N" if isinstance(option.type, click.types.IntParamType) else option.type.name.upper())


def _cell(text: str) -> str:
    return _in_code(" ".join(text.split())).replace("|", "\\|")


def _in_code(text: str) -> str:
    """Options and patterns in a sentence as code."""
    return re.sub(r"(?<![`\w])(--[a-z][a-z-]+|'[^']*\*[^']*')", r"`\1`", text)


def releases_table(_: str) -> str:
    """What envpack knows of each release."""
    heads = ["Triton", "server", "stub ABI", "Python", "glibc", "CUDA", "NumPy 2", "environment", "server in a wheel"]
    rows = [_release_row(release) for release in all_releases().values()]
    return "\n".join(f"| {' | '.join(row)} |" for row in [heads, ["---"] * len(heads), *rows])


def _release_row(release: Release) -> list[str]:
    wheel = f"`nvidia-pytriton=={release.wheel}`" if release.wheel else ""
    return [
        release.name,
        release.server,
        release.stub_abi,
        release.python,
        release.glibc,
        release.cuda,
        "yes" if release.numpy2 else "no",
        "folder or archive" if release.takes_folders else "archive",
        wheel,
    ]


def verdict_table(_: str) -> str:
    """The keys of a verdict, from its schema."""
    schema = json.loads((CHECKOUT / "envpack/verification/verdict.schema.json").read_text(encoding="utf-8"))
    rows = [f"| `{path}` | {kind} | {_cell(text)} |" for path, kind, text in _keys(schema, schema, "")]
    return "\n".join(["| key | type | |", "|---|---|---|", *rows])


def _keys(schema: dict[str, Any], node: dict[str, Any], prefix: str) -> Iterator[tuple[str, str, str]]:
    node = _resolved(schema, node)
    for name, value in node.get("properties", {}).items():
        found = _resolved(schema, value)
        yield prefix + name, _kind(schema, found), value.get("description") or found.get("description", "")
        inner = _resolved(schema, found.get("items", found))
        alternatives = [_resolved(schema, each) for each in found.get("anyOf", found.get("oneOf", []))]
        for each in [inner, *alternatives]:
            yield from _keys(schema, each, f"{prefix}{name}{'[]' if 'items' in found else ''}.")


def _resolved(schema: dict[str, Any], node: dict[str, Any]) -> dict[str, Any]:
    while "$ref" in node:
        found: Any = schema
        for part in node["$ref"].removeprefix("#/").split("/"):
            found = found[part]
        node = found
    return node


def _kind(schema: dict[str, Any], node: dict[str, Any]) -> str:
    options = node.get("anyOf") or node.get("oneOf")
    if options:
        return " or ".join(_kind(schema, _resolved(schema, each)) for each in options)
    if "enum" in node:
        return " \\| ".join(f"`{json.dumps(value)}`" for value in node["enum"])
    if "const" in node:
        return f"`{json.dumps(node['const'])}`"
    kind = node.get("type", "object")
    return " or ".join(kind) if isinstance(kind, list) else str(kind)


def api(package: str) -> str:
    """A directive of mkdocstrings for each class and function that a package offers."""
    offered = importlib.import_module(package)
    values = [getattr(offered, name) for name in offered.__all__]
    return "\n\n".join(f"::: {home(value)}" for value in values if inspect.isclass(value) or inspect.isfunction(value))


def home(value: Any) -> str:
    """Where a class or function is defined, for a reader of the sources."""
    module, qualified = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if not module or not qualified or getattr(importlib.import_module(module), qualified, None) is not value:
        raise KeyError(value)
    return f"{module}.{qualified}"


def example_table(titles: dict[str, str]) -> str:
    """Names of recipes or templates, and what they show."""
    rows = [f"| `{name}` | {_cell(title)} |" for name, title in titles.items()]
    return "\n".join(["| | |", "|---|---|", *rows])


def ran_table(_: str) -> str:
    """When each recipe last ran."""
    heads = ["recipe", "date", "Triton", "Pythons", "disk", "seconds", "packages"]
    rows = [
        [
            f"`{name}`" if name in example_titles("recipes") else f"template `{name}`",
            ran.date,
            ran.release,
            ", ".join(ran.pythons),
            f"{ran.megabytes} MB",
            " / ".join(str(round(seconds)) for seconds in ran.seconds.values()),
            ran.packages,
        ]
        for name, ran in records().items()
    ]
    return "\n".join(f"| {' | '.join(row)} |" for row in [heads, ["---"] * len(heads), *rows])


def requirement_names(_: str) -> str:
    """The names of requirements files, in the order of the search."""
    return " · ".join(f"`{name}`" for known in all_formats() for name in known.names)


def requirement_formats(_: str) -> str:
    """What of each format is read and refused, from the docstrings of the readers."""
    rows = [inspect.cleandoc(known.read.__doc__ or "").split("\n\n") for known in all_formats()]
    lines = [" | ".join(" ".join(part.removeprefix("Read: ").split()) for part in row) for row in rows]
    return "\n".join(["| file | read | refused, or left out |", "|---|---|---|", *(f"| {line} |" for line in lines)])


def checks_table(of: str) -> str:
    """The checks of a model, with what they examine, or those of the server."""
    importlib.import_module("envpack.verification.run")  # registers all
    server = of == "server"
    found = [known for known in CHECKS.values() if (known.of == "server") == server]
    found.sort(key=lambda known: ["model", "process", "answers", "server"].index(known.of))
    rows = [f"| `{known.id}` |{'' if server else f' {known.of} |'} {known.condition} |" for known in found]
    heads = ["check", *([] if server else ["of"]), "condition"]
    return "\n".join([f"| {' | '.join(heads)} |", "|---" * len(heads) + "|", *rows])


def kinds_of_checks(_: str) -> str:
    """The sections of the kinds of failure that only one check finds."""
    importlib.import_module("envpack.verification.run")  # registers all
    return "\n\n".join(
        f"### {known.kind}\n\n{known.meaning}"
        for known in sorted(CHECKS.values(), key=lambda known: known.kind)
        if known.meaning
    )


GENERATED = {
    "kinds-of-checks": kinds_of_checks,
    "checks": checks_table,
    "faults": faults.table,
    "fault": faults.example,
    "requirement-names": requirement_names,
    "requirement-formats": requirement_formats,
    "command-list": command_list,
    "command": command_page,
    "releases": releases_table,
    "verdict-schema": verdict_table,
    "api": api,
    "recipes": lambda _: example_table(example_titles("recipes")),
    "templates": lambda _: example_table(example_titles("templates")),
    "recipes-ran": ran_table,
    "settings": settings.table,
}
