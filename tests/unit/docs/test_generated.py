"""What the site generates from the code is there, and complete."""

import json
import re
import tomllib

import click
import pytest

import envpack
from ci.docs import pages, settings
from envpack import testing
from envpack.settings.project import open_project
from envpack.settings.releases import all_releases
from envpack.support.errors import InputError
from tests.tables import every_row
from tests.unit.docs.documents import CHECKOUT, NAMES, read

COMMANDS = sorted({name.partition(" ")[0] for name in pages.commands()})
REFERENCE = read("docs/reference/command-line.md")


def options(name):
    found = [command for full, command in pages.commands().items() if full.partition(" ")[0] == name]
    return {opt for command in found for parameter in command.params for opt in parameter.opts if opt.startswith("-")}


@every_row("name", NAMES)
def test_every_mark_is_known(name):
    for what, argument in pages.marks(read(name)):
        assert pages.GENERATED[what](argument)


def test_every_command_has_a_section_with_its_options():
    sections = re.findall(r"^## envpack ([a-z]+)\n\n<!-- generated: command \1 -->$", REFERENCE, re.MULTILINE)
    assert sorted(sections) == COMMANDS


@every_row("name", COMMANDS)
def test_every_option_is_shown_with_its_help(name):
    shown = set(re.findall(r"`(--?[a-z][a-z-]*)`", pages.command_page(name)))
    assert options(name) - {"--json", "--quiet", "-q"} <= shown
    silent = [
        option.name
        for full, command in pages.commands().items()
        for option in command.params
        if full.partition(" ")[0] == name and isinstance(option, click.Option) and not option.help
    ]
    assert silent == []


def test_every_release_is_in_the_table():
    rows = re.findall(r"^\| (\d\d\.\d\d) \|", pages.releases_table(""), re.MULTILINE)
    assert rows == list(all_releases())


def test_every_public_name_has_its_place_in_the_python_api():
    assert pages.api("envpack").count(":::") == len(envpack.__all__)
    assert pages.api("envpack.testing").count(":::") == len(testing.__all__) - len(["TritonModel"])  # of a fixture
    assert pages.home(envpack.verify).startswith("envpack.verification.")


def test_every_key_of_a_verdict_is_described():
    schema = json.loads((CHECKOUT / "envpack/verification/verdict.schema.json").read_text(encoding="utf-8"))
    shown = set(re.findall(r"^\| `([^`]+)`", pages.verdict_table(""), re.MULTILINE))
    assert set(schema["properties"]) <= shown
    assert {"models[].name", "models[].failure.kind", "models[].checks[].id"} <= shown


@pytest.fixture(scope="module")
def schema_errors():
    """What the schema of envpack.toml has against the text of one."""
    from jsonschema import Draft202012Validator  # takes seconds to import: not in every test process

    validator = Draft202012Validator(settings.schema())
    return lambda text: list(validator.iter_errors(tomllib.loads(text)))


def test_every_key_of_envpack_toml_is_described():
    for where in ("project", "model"):
        described = re.findall(r"^\| `(\w+)` \| .+ \| .+ \|$", settings.table(where), re.MULTILINE)
        assert described == [field.name for field in settings.keys(where)]


def test_the_example_of_envpack_toml_is_one_for_envpack_and_for_editors(tmp_path, schema_errors):
    example = re.search(r"```toml\n(.*?)```", read("docs/reference/envpack-toml.md"), re.DOTALL)[1]
    (tmp_path / "envpack.toml").write_text(example)
    assert open_project(tmp_path).models.keys() == {"core", "tree"}
    assert schema_errors(example) == []


@every_row("text", ["pythn = '3.8'", "layout = 'x'", "push = 1", "timeout = 0", "[models.m]\npush = true"])
def test_the_schema_refuses_what_envpack_refuses(tmp_path, schema_errors, text):
    (tmp_path / "envpack.toml").write_text(text)
    with pytest.raises(InputError):
        open_project(tmp_path)
    assert schema_errors(text)


def test_every_exit_code_is_documented():
    from envpack.support import errors

    codes = {value.exit_code for value in vars(errors).values() if hasattr(value, "exit_code")}
    written = {int(code) for code in re.findall(r"^\| (\d+) \|", REFERENCE, re.MULTILINE)}
    assert written == codes | {0, 1, 8, 130}
