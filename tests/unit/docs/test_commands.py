"""Every command in the documentation exists, with the options and choices that it is given there."""

import ast
import importlib
import re

import click

from envpack.cli.main import cli
from tests.tables import every_row
from tests.unit.docs.documents import CHECKOUT, NAMES, commands, fences, read, words

TARGETS = set(re.findall(r"^([a-z][\w-]*):", read("Makefile"), re.MULTILINE))


def wrong_with(arguments):
    """What the command line would say of these arguments, whatever is on the disk; "" if they are right."""
    command, context = cli, click.Context(cli, info_name="envpack")
    while isinstance(command, click.Group):
        if not arguments or arguments[0] in {"COMMAND", "--help", "-h", "--version"}:
            return ""
        name, *arguments = arguments
        command = command.get_command(context, name)
        if command is None:
            return f"no command {name}"
        context = click.Context(command, info_name=name, parent=context)
    try:
        given, _, _ = command.make_parser(context).parse_args(list(arguments))
    except click.BadOptionUsage as error:  # an option that is only named, without its value
        return "" if arguments[-1:] == [error.option_name] else error.format_message()
    except click.UsageError as error:
        return error.format_message()
    return next(filter(None, (_wrong_choice(parameter, given.get(parameter.name)) for parameter in command.params)), "")


def _wrong_choice(parameter, values):
    """What is wrong with the values of an option that takes some words only."""
    if not isinstance(parameter.type, click.Choice):
        return ""
    given = [value for value in (values if isinstance(values, list) else [values]) if isinstance(value, str)]
    unknown = {word for value in given for word in value.split("|")} - set(parameter.type.choices)
    return f"{parameter.opts[0]} takes no {', '.join(unknown)}" if unknown else ""


@every_row(
    ("line", "wrong"),
    [
        ("build --dry-run --format tar.gz", ""),
        ("build --dry-run --format zip", "--format takes no zip"),
        ("build --everything", "No such option"),
        ("build --format", ""),
        ("bild", "no command bild"),
        ("channel add-python 3.8 --to FOLDER", ""),
        ("channel remove", "no command remove"),
    ],
)
def test_what_is_wrong_is_found(line, wrong):
    assert wrong_with(line.split()).startswith(wrong)
    assert bool(wrong_with(line.split())) == bool(wrong)


@every_row("name", NAMES)
def test_envpack_commands_are_understood(name):
    found = {line: wrong_with(words(line)[1:]) for line in commands(name) if words(line)[0] == "envpack"}
    assert {line: wrong for line, wrong in found.items() if wrong} == {}


def is_target(word):
    """Whether the Makefile has a target; `test-…` runs the tests of a folder."""
    return word in TARGETS or (word.startswith("test-") and (CHECKOUT / "tests" / word.removeprefix("test-")).is_dir())


@every_row("name", NAMES)
def test_programs_of_the_repository_are_there(name):
    missing = []
    for line in commands(name):
        first, *rest = words(line)
        if first == "make":
            missing += [line for word in rest if "=" not in word and not is_target(word)]
        elif first in {"python", "python3", "bash"} and rest and rest[0].startswith(("ci/", "benchmarks/", "tests/")):
            missing += [] if (CHECKOUT / rest[0]).is_file() else [line]
        elif first == "pytest":
            missing += [line for word in rest if word.startswith("tests/") and not (CHECKOUT / word).exists()]
        elif first.startswith(("ci/", "tests/")):
            missing += [] if (CHECKOUT / first.partition("::")[0]).exists() or "*" in first else [line]
    assert missing == []


@every_row("name", NAMES)
def test_python_examples_import_what_is_there(name):
    for fence in fences(name):
        if fence.language != "python":
            continue
        for node in ast.walk(ast.parse(fence.text)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "envpack":
                module = importlib.import_module(node.module)
                assert [alias.name for alias in node.names if not hasattr(module, alias.name)] == []


def test_nothing_installs_the_other_project_of_this_name():
    wrong = [
        f"{name}: {found}"
        for name in NAMES
        for found in re.findall(r"(?:pip|uv tool|pipx) (?:install|download)[^\n`]*", read(name))
        if re.search(r"(?<![\w/.-])envpack(?:\[[^]]*\])?(?![\w/-])", found)
    ]
    assert wrong == []
    assert [name for name in NAMES if re.search(r"(?<![\w/.-])envpack(?:\[[^]]*\])?[=~<>]=", read(name))] == []
