"""Both spellings of a platform are accepted everywhere, and one is shown."""

import json

import pytest

from envpack.cli.main import run
from envpack.requirements import Target
from envpack.settings import open_project
from envpack.support.platforms import platform_name


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("linux-64", "linux-64"),
        ("linux-x86_64", "linux-64"),
        ("linux-aarch64", "linux-aarch64"),
        ("osx-arm64", "osx-arm64"),
    ],
)
def test_a_platform_has_one_name(text, name):
    assert platform_name(text) == name


def test_a_target_and_a_project_file_accept_both_spellings(tmp_path):
    assert Target("linux-x86_64") == Target("linux-64")
    (tmp_path / "envpack.toml").write_text('platform = "linux-x86_64"')
    assert open_project(tmp_path).of().platform == "linux-64"


@pytest.mark.parametrize("spelling", ["linux-64", "linux-x86_64"])
def test_the_command_line_accepts_both_spellings(spelling, tmp_path, capsys):
    """The platform is accepted; the Python is not."""
    status = run(["stub", "--python", "3.99", "--platform", spelling, "--print-matrix", "--json"])
    assert (status, json.loads(capsys.readouterr().out)["error"]["kind"]) == (2, "bad-python-version")
