"""What a verdict looks like on a terminal of 80 columns."""

import dataclasses
import io

import pytest
from rich.console import Console

from envpack.cli.verdict_view import draw
from envpack.verification.report import render
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


@pytest.mark.parametrize(("start", "count"), [("warm", 1), ("cold", 0), ("", 0)])
def test_the_page_names_a_warm_start_too(start, count):
    verdict = full_verdict()
    first, *others = verdict.models
    models = (dataclasses.replace(first, stub=dataclasses.replace(first.stub, start=start)), *others)
    assert render(dataclasses.replace(verdict, models=models)).count("<td>envpack 0.1.0, warm</td>") == count
