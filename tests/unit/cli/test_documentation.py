"""docs/reference/command-line.md names every command, option and exit code."""

import re
from pathlib import Path

import click
import pytest

from envpack.cli.main import cli
from envpack.support import errors

GUIDE = (Path(__file__).parents[3] / "docs/reference/command-line.md").read_text(encoding="utf-8")
COMMANDS = cli.list_commands(click.Context(cli))


def chapter(name):
    return re.search(rf"^## envpack {name}$(.*?)(?=^## )", GUIDE, re.MULTILINE | re.DOTALL)[1]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_is_documented_and_no_other(name):
    command = cli.get_command(click.Context(cli), name)
    commands = command.commands.values() if isinstance(command, click.Group) else [command]
    parameters = [parameter for one in commands for parameter in one.params]
    options = {opt for parameter in parameters if isinstance(parameter, click.Option) for opt in parameter.opts}
    written = set(re.findall(r"^\| `(--[a-z-]+)", chapter(name), re.MULTILINE))
    assert written == options - {"--json", "--quiet", "-q"}


def test_every_exit_code_is_documented():
    codes = {value.exit_code for value in vars(errors).values() if hasattr(value, "exit_code")}
    written = {int(code) for code in re.findall(r"^\| (\d+) \|", GUIDE, re.MULTILINE)}
    assert written == codes | {0, 1, 130}
