"""Without a terminal, a long step writes a line now and then, so that a log shows that the command still runs."""

import pytest

from envpack.cli import console as drawing
from envpack.cli.console import Console
from tests.waiting import soon


class Written:
    """What the command has written to standard error so far."""

    def __init__(self, capsys):
        self._capsys, self._lines = capsys, []

    @property
    def lines(self):
        self._lines += self._capsys.readouterr().err.splitlines()
        return self._lines


@pytest.fixture
def written(capsys):
    return Written(capsys)


@pytest.fixture
def fast(monkeypatch):
    monkeypatch.setattr(drawing, "FIRST", 0.01)
    monkeypatch.setattr(drawing, "SILENCE", 0.02)


@pytest.mark.usefixtures("fast")
def test_a_step_that_writes_nothing_is_named_again_and_again_until_it_ends(written):
    console = Console()
    console.begin("compile [it]")
    assert soon(lambda: len(written.lines) >= 3)
    console.end("compiled")
    count = len(written.lines)
    assert {line.partition(" … ")[0] for line in written.lines} == {"  compile [it]"}
    assert all(line.endswith(" s so far") for line in written.lines[:-1])
    assert written.lines[-1].startswith("  compile [it] … compiled")
    assert not soon(lambda: len(written.lines) > count, seconds=0.2)


@pytest.mark.usefixtures("fast")
def test_the_line_says_how_much_is_done_also_after_a_warning(written):
    console = Console()
    console.begin("pack")
    console.warned("the disk is nearly full")
    console.advance(3, 9, "files", size=2_000_000)
    assert soon(lambda: any("… 3 of 9 files, 2.0 MB, 0 s so far" in line for line in written.lines))
    console.end("packed")


def test_a_command_writes_within_two_seconds_and_then_at_least_every_ten():
    assert (drawing.FIRST < 2, drawing.SILENCE < 10) == (True, True)


def test_a_line_puts_the_next_one_off(monkeypatch, written):
    monkeypatch.setattr(drawing, "FIRST", 0.1)
    monkeypatch.setattr(drawing, "SILENCE", 60)
    console = Console()
    console.begin("first")
    console.detail("half of it")
    assert not soon(lambda: len(written.lines) > 1, seconds=0.5)
    console.end("done")


@pytest.mark.usefixtures("fast")
def test_quiet_means_quiet(written):
    console = Console(quiet=True)
    console.begin("compile")
    assert not soon(lambda: written.lines, seconds=0.2)
    console.end("compiled")
    assert written.lines == []


def test_a_terminal_that_draws_no_moving_parts_gets_lines(monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    assert not Console().terminal.is_terminal
