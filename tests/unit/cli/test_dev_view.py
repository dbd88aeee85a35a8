"""The screen of `envpack dev`."""

import io
from types import SimpleNamespace

import pytest
from rich.console import Console

from envpack.cli.console import Console as Output
from envpack.cli.dev import _Page, view
from envpack.development.models import ModelState

LOG = """\
I1124 12:00:00.000001 77 server.cc:1] "of the server"
+-----+
W1124 12:00:00.000002 77 model_lifecycle.cc:1] "ignore version directory 'python3.10'"
W1124 12:00:00.000003 77 server.cc:2] "a warning"
I1124 12:00:00.000004 77 model.py:3] "logged by the model"
printed by the model
"""


def screen(session, width=80, height=24):
    """The lines that fill a terminal."""
    console = Console(file=io.StringIO(), width=width, height=height, force_terminal=True, color_system=None)
    console.print(_Page(session, "", ""))
    return console.file.getvalue().rstrip("\n").splitlines()


def session(states, log=LOG, trouble=""):
    return SimpleNamespace(
        states={state.name: state for state in states}, log=lambda: log, url="http://127.0.0.1:8000", trouble=trouble
    )


def ready(name):
    return ModelState(
        name, phase="ready", serves=True, loads=2, per_second=7.0, latency=0.002, memory=(30 << 20, 40 << 20)
    )


def test_models_and_what_they_log_are_shown():
    lines = screen(session([ready("model_a")]))
    assert "http://127.0.0.1:8000" in lines[0]
    (row,) = [line for line in lines if line.startswith("model_a")]
    assert row.split() == ["model_a", "ready", "7.0", "2.00", "ms", "30", "+", "40", "MiB"]
    shown = lines[[line.startswith("log") for line in lines].index(True) + 1 :]
    assert [line.rstrip() for line in shown] == [
        "12:00:00 server.cc:2  a warning",
        "12:00:00 model.py:3  logged by the model",
        "printed by the model",
    ]


def test_failed_requests_are_counted():
    state = ready("model_a")
    state.failures = 3
    assert any("7.0 3 failed" in line for line in screen(session([state]), width=120))


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (50, 12), (40, 8)])
def test_the_screen_fits_the_terminal_whatever_goes_wrong(size):
    error = "\n".join(["ValueError: boom", "model_b/1/model.py:3 in f", *(f"  line {number}" for number in range(90))])
    failed = [ModelState(f"model_{name}", phase="failed", error=error, serves=True) for name in "bcd"]
    lines = screen(session([ready("model_a"), *failed], LOG * 30, "the server ended by SIGKILL"), *size)
    assert len(lines) <= size[1]
    assert all(len(line) <= size[0] for line in lines)


def test_an_error_begins_with_the_exception_and_leaves_lines_to_the_log():
    error = "\n".join(["ValueError: boom", "model_b/1/model.py:3 in f", *(f"  line {number}" for number in range(90))])
    lines = screen(session([ModelState("model_b", phase="failed", error=error, serves=True)], LOG * 9))
    text = "\n".join(lines)
    assert text.index("ValueError: boom") < text.index("model_b/1/model.py:3 in f") < text.index("printed by the model")
    assert "the server goes on with what it had" in text


def test_text_from_models_is_made_printable():
    text = "\n".join(screen(session([ModelState("model_b", phase="failed", error="bad \x1b[2J [bold]text[/]")])))
    assert "\x1b[2J" not in text
    assert "[bold]text[/]" in text


def test_without_a_terminal_a_model_that_goes_and_comes_back_is_named_each_time(capsys):
    shown = session([ready("one"), ready("two")])
    with view(Output()) as lines:
        for states in ([ready("one"), ready("two")], [ready("one")], [ready("one")], [ready("one"), ready("two")]):
            shown.states = {state.name: state for state in states}
            lines.show(shown)
    assert [line.split(" in ")[0].strip() for line in capsys.readouterr().err.splitlines()] == [
        "one: ready",
        "two: ready",
        "two: removed",
        "two: ready",
    ]
