"""Values of settings whose form decides what they mean."""

import ast
import tomllib
from pathlib import Path

import pytest

import envpack
from envpack.settings.fields import BadValueError, OnServer, Size
from envpack.settings.table import FIELDS, Settings
from envpack.support.errors import UsageError


def read(text):
    return OnServer(example="/models").read("served_from", text, Path("envpack.toml"), "envpack.toml")


@pytest.mark.parametrize(
    ("text", "path"),
    [("/models", "/models"), ("/models/", "/models"), ("//models", "/models"), ("/a/../models", "/models"), ("", "")],
)
def test_a_path_on_the_server_is_one_spelling(text, path):
    assert read(text) == path


@pytest.mark.parametrize("text", ["models", "./models", "~/models"])
def test_a_path_on_the_server_begins_at_its_root(text):
    with pytest.raises(BadValueError, match="served_from in envpack.toml must begin with /"):
        read(text)


@pytest.mark.parametrize(("text", "character"), [("/my models", " "), ("/models;x", ";"), ("/models/$x", "$")])
def test_a_path_on_the_server_that_its_shell_would_take_apart_is_refused(text, character):
    with pytest.raises(BadValueError, match="served_from in envpack.toml contains") as raised:
        read(text)
    assert f"contains {character!r}, and servers pass it to a shell unquoted" in str(raised.value)


def size(text):
    return Size(example="8g").read("memory", text, Path("envpack.toml"), "envpack.toml")


def test_a_size_has_a_unit_and_counts_bytes_without():
    assert (size("1m"), size("8G"), size("1048576")) == (1 << 20, 8 << 30, 1 << 20)


@pytest.mark.parametrize("text", ["4", "4096", "512k", "0g", "8Gi", "1e9", "-1g", ""])
def test_a_size_that_no_container_starts_with_is_refused(text):
    with pytest.raises(BadValueError, match="memory in envpack.toml is not a size such as 512m or 1g") as raised:
        size(text)
    assert raised.value.hint == 'write it like memory = "8g"'


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"python": 3.10}, "python in Settings must be text in quotes"),
        ({"exclude": "*.pyc"}, "exclude in Settings must be a list of texts"),  # was read as four patterns
        ({"exclude": iter(["*.pyc"])}, "exclude in Settings must be a list of texts"),
        ({"env": {"NAME": "value"}}, "env in Settings must be a list of texts"),
        ({"format": "zip"}, "unknown format 'zip' in Settings"),
        ({"runtime": "container"}, "unknown runtime 'container' in Settings"),
        ({"timeout": 0}, "timeout in Settings must be a number from 1 to 604800, not 0"),
        ({"timeout": "5"}, "timeout in Settings must be a number from 1 to 604800, not '5'"),
        ({"gpu": 1}, "gpu in Settings must be true or false"),
        ({"memory": 8}, "memory in Settings is not a size such as 512m or 1g"),
        ({"server": 1}, "server in Settings must be text in quotes"),
    ],
)
def test_a_program_cannot_say_what_no_file_can(said, why):
    with pytest.raises(UsageError) as raised:
        Settings(**said)
    assert (raised.value.message, bool(raised.value.hint)) == (why, True)


def test_a_program_can_say_what_a_file_can():
    said = {"exclude": ["*.pyc"], "server": "triton", "memory": "8g", "platform": "linux-x86_64", "served_from": "/m/"}
    read = {"exclude": ("*.pyc",), "server": Path("triton"), "memory": 8 << 30, "platform": "linux-64"}
    assert Settings(**said) == Settings(**read, served_from="/m")


def test_what_was_read_is_read_again_as_it_is():
    values = {name: field.read_word(field.kind.example or "true", "a test") for name, field in FIELDS.items()}
    assert {name: getattr(Settings(**values), name) for name in FIELDS} == values


@pytest.mark.parametrize("name", FIELDS)
def test_what_an_error_proposes_is_read_where_it_is_said(name):
    field = FIELDS[name]
    for place, start in (("--set", f"--set {name}="), (field.flag, f"{field.flag} ")):
        with pytest.raises(BadValueError) as raised:
            field.kind.read(name, object(), Path("envpack.toml"), place)
        proposed = raised.value.hint.removeprefix("write it like ")
        assert proposed.startswith(start)
        field.read_word(proposed.removeprefix(start), place)
    with pytest.raises(BadValueError) as raised:
        field.kind.read(name, object(), Path("envpack.toml"), "the top level")
    line = raised.value.hint.removeprefix("write it like ").removesuffix(", without quotes")
    field.kind.read(name, tomllib.loads(line)[name], Path("envpack.toml"), "the top level")


def test_the_folder_of_a_channel_is_one_address_wherever_it_is_said(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    field, file = FIELDS["channels"], tmp_path / "models/envpack.toml"
    address = f"{tmp_path.as_uri()}/my%20channel"
    for text in ("../my channel", "~/my channel", f"{tmp_path}/my channel/", address):
        assert field.kind.read("channels", [text, "conda-forge"], file, "envpack.toml") == (address, "conda-forge")
    assert field.read_word("./my channel", "--channel") == Settings(channels=("./my channel",)).channels == (address,)


def test_every_setting_is_used():
    """A setting that nothing reads is accepted, and changes nothing."""
    package = Path(envpack.__file__).parent
    trees = [ast.parse(file.read_text()) for file in package.rglob("*.py") if file.parent != package / "settings"]
    read = {node.attr for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    assert FIELDS.keys() - read == set()
