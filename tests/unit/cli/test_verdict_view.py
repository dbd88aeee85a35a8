"""What a verdict looks like on a terminal of 80 columns."""

import dataclasses
import io

import pytest
from rich.console import Console

from envpack.cli.verify import draw
from envpack.verification.report import render
from envpack.verification.verdict import failed, passed, unchecked
from tests.verdicts import full_verdict


def drawn(names, width=80, **stub):
    verdict = full_verdict()
    model = dataclasses.replace(verdict.models[0], stub=dataclasses.replace(verdict.models[0].stub, **stub))
    models = tuple(dataclasses.replace(model, name=name) for name in names)
    text = io.StringIO()
    terminal = Console(file=text, width=width, force_terminal=False)
    for part in draw(dataclasses.replace(verdict, models=models)):
        terminal.print(part)
    return text.getvalue()


@pytest.mark.parametrize("width", [80, 60, 200])
def test_the_name_of_a_model_is_on_one_line(width):
    names = ["preprocessing", "a_model_with_forty_characters_in_its_name"[:40]]
    lines = drawn(names, width).splitlines()
    assert all(any(name in line for line in lines) for name in names)


def test_a_longer_name_is_folded_and_nothing_of_it_is_missing():
    name = "n" * 30 + "-" + "m" * 70
    rows = [line.split()[0] for line in drawn([name]).splitlines() if line.strip()]
    assert name in "".join(row for row in rows if set(row) <= {"n", "m", "-"})


def test_a_name_is_no_markup():
    assert "[red]model" in drawn(["[red]model"])


@pytest.mark.parametrize(
    ("stub", "text"),
    [
        ({"start": "warm"}, "envpack 0.1.0, warm "),
        ({"start": "cold"}, "envpack 0.1.0 "),
        ({"version": ""}, "the release's own "),
    ],
)
def test_the_stub_is_named_and_a_warm_start_too(stub, text):
    assert text in drawn(["m"], width=200, **stub)


def answered(*checks, ok=True):
    """A verdict on one model with these checks, as text and as a page."""
    verdict = full_verdict()
    model = dataclasses.replace(verdict.models[1], ok=ok, failure=None, checks=checks)
    verdict = dataclasses.replace(verdict, ok=False, models=(model,), checks=(), leftovers=())
    text = io.StringIO()
    for part in draw(verdict):
        Console(file=text, width=200, force_terminal=False).print(part)
    return text.getvalue(), render(verdict)


def test_what_could_not_be_checked_is_said_and_the_answer_is_no_plain_yes():
    text, page = answered(passed("load", "READY"), unchecked("infer", "not sent: no input", "declare the inputs"))
    assert "not fully checked" in text
    assert "infer: not checked: not sent: no input\n  declare the inputs" in text
    assert "VERDICT: yes as far as checked – 0 of 1 models serve, 1 not fully checked, nothing left behind" in text
    assert "<h1>Fit to serve as far as checked</h1>" in page


def test_a_model_without_backend_is_not_counted_as_one_that_serves():
    why = 'not verified: this server has no backend "onnxruntime"'
    text, page = answered(unchecked("load", why, "verify with another server"))
    assert f"load: not checked: {why}\n  verify with another server" in text
    assert "VERDICT: yes as far as checked – 0 of 1 models serve, 1 not verified, nothing left behind" in text
    assert "0 of 1 models serve, 1 not verified, nothing left behind." in page


def test_a_fault_has_priority_over_what_could_not_be_checked():
    text, page = answered(unchecked("infer", "not sent", "fix"), failed("files", "changed", "build"), ok=False)
    assert "VERDICT: no" in text
    assert "<h1>Not fit to serve</h1>" in page


@pytest.mark.parametrize(("start", "count"), [("warm", 1), ("cold", 0), ("", 0)])
def test_the_page_names_a_warm_start_too(start, count):
    verdict = full_verdict()
    first, *others = verdict.models
    models = (dataclasses.replace(first, stub=dataclasses.replace(first.stub, start=start)), *others)
    assert render(dataclasses.replace(verdict, models=models)).count("<td>envpack 0.1.0, warm</td>") == count
