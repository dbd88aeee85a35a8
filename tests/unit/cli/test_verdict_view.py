"""What a verdict looks like on a terminal of 80 columns."""

import dataclasses
import io

import pytest
from rich.console import Console

from envpack.cli.verdict_view import draw
from tests.verdicts import full_verdict


def drawn(names, width=80):
    verdict = full_verdict()
    models = tuple(dataclasses.replace(verdict.models[0], name=name) for name in names)
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
