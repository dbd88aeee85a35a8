"""What was asked for goes to standard output, everything else to standard error; a closed pipe ends quietly."""

import json
import signal
import subprocess

import pytest

from envpack.cli.main import run
from tests.faults.bad_input import MODEL, BadInput
from tests.faults.command_line import command, variables


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ENVPACK_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture
def repository(tmp_path):
    return BadInput("", "", 0, "", (), MODEL).write(tmp_path)


@pytest.mark.parametrize(
    ("words", "printed"),
    [
        (("releases",), "24.10"),
        (("cache", "ls"), "cache: 0.0 MB"),
        (("stub", "--python", "3.11", "--print-matrix"), "cp311-"),
        (("build", "--dry-run", "--python", "3.11"), "would resolve the packages"),
    ],
    ids=lambda words: words[0],
)
def test_results_go_to_standard_output(repository, monkeypatch, capsys, words, printed):
    monkeypatch.chdir(repository)
    assert run(list(words)) == 0
    assert printed in capsys.readouterr().out
    assert run([*words, "--json"]) == 0
    said = capsys.readouterr()
    assert json.loads(said.out)["schema"] == 1
    assert printed in said.err


def test_lines_without_a_terminal_end_without_blanks(capsys):
    assert run(["releases"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines == [line.rstrip() for line in lines]


def test_a_reader_that_stops_reading_is_no_error():
    with subprocess.Popen(
        command("releases"), env=variables(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as child:
        child.stdout.close()
        complaints = child.stderr.read()
    assert child.returncode == 128 + signal.SIGPIPE
    assert complaints == b""


@pytest.mark.parametrize("group", ["cache", "channel"])
def test_a_group_without_a_command_prints_its_help(group, capsys):
    assert run([group]) == 0
    said = capsys.readouterr()
    assert said.out.startswith(f"Usage: envpack {group} ")
    assert said.err == ""


def test_a_locale_without_the_characters_of_a_table_still_gets_one():
    done = subprocess.run(
        command("releases"),
        env=variables({"PYTHONIOENCODING": "ascii"}),
        capture_output=True,
        text=True,
        check=True,
    )
    assert "24.10" in done.stdout


def test_the_next_command_is_named_on_standard_error(tmp_path, capsys):
    target = str(tmp_path / "a model repository")
    assert run(["init", target]) == 0
    said = capsys.readouterr()
    assert said.out == ""
    assert f"next: envpack build --repository '{target}'" in said.err.splitlines()
    assert run(["init", "--json", str(tmp_path / "other")]) == 0
    assert "next:" not in capsys.readouterr().err
