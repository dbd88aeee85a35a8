"""The Python of a model: one rule for all formats of requirements."""

from pathlib import Path

import pytest

from envpack.requirements.model import Requirements
from envpack.settings.pythons import SUPPORTED
from envpack.settings.releases import find_release
from envpack.support.errors import InputError, UsageError
from envpack.workflow.python_choice import ChosenPython, choose_python
from tests.tables import every_row

FILE, HAD = Path("/r/m/environment.yml"), (("3.12", "envpack.lock"),)


def choose(python_range, *, option="", project="", had=(), here=(), exact="", source=None):
    places = {"python": "/r/m/environment.yml:3"}
    return choose_python(
        Requirements(python=exact, python_range=python_range, places=places, source=source),
        said=(option, "--python", "") if option else (project, "envpack.toml", "/r/envpack.toml"),
        had=lambda: had,
        release=find_release("24.10"),
        here=lambda _: set(here),
    )


@every_row(
    ("how", "chosen"),
    [
        ({}, ChosenPython("3.10", "Triton 24.10", named=False)),
        ({"exact": "3.9", "source": FILE}, ChosenPython("3.9", "environment.yml")),
        ({"exact": "3.9", "source": FILE, "had": HAD}, ChosenPython("3.9", "environment.yml")),
        ({"option": "3.12"}, ChosenPython("3.12", "--python")),
        ({"project": "3.12"}, ChosenPython("3.12", "envpack.toml")),
        ({"had": (*HAD, ("3.8", "x"))}, ChosenPython("3.12", "envpack.lock")),
    ],
)
def test_what_is_said_comes_first_then_what_the_model_has(how, chosen):
    assert choose("", **how) == chosen


@every_row(
    ("python_range", "how", "minor"),
    [
        (">=3.8", {}, "3.10"),
        (">=3.8,<3.12", {"option": "3.11"}, "3.11"),
        (">=3.11", {"here": ("3.8", "3.12", "3.11")}, "3.12"),
        (">=3.11,<3.12", {"here": ("3.8",)}, "3.11"),
        (">=3.8,<3.10", {}, "3.9"),
        (">=3.8,<3.10", {"here": ("3.8", "3.10")}, "3.8"),
        (">=3.12", {"had": (("3.10", "envpack.lock"), ("3.12", "x"))}, "3.12"),
    ],
)
def test_a_range_decides_with_what_can_be_had(python_range, how, minor):
    chosen = choose(python_range, **how)
    assert chosen.minor == minor
    assert bool(chosen.note) == (not chosen.named and minor != "3.10")


def test_the_newest_that_is_allowed_says_why():
    assert choose(">=3.11,<3.14", here=("3.12",), source=FILE) == ChosenPython(
        "3.12",
        "the newest for >=3.11,<3.14 in environment.yml",
        named=False,
        note="Python 3.12: Triton 24.10 has 3.10, and environment.yml requires >=3.11,<3.14",
    )
    assert choose(">=3.11", here=()).minor == SUPPORTED[-1]


@every_row(
    ("python_range", "how", "says", "hint"),
    [
        (
            *(">=3.8,<3.10", {"option": "3.12"}, "Python 3.12 (--python) is outside of >=3.8,<3.10"),
            "use --python 3.8 or 3.9, or change the range in the file",
        ),
        (">=3.11", {"project": "3.9"}, "Python 3.9 (envpack.toml) is outside of >=3.11", "use --python 3.11"),
        ("", {"option": "3.9", "exact": "3.10"}, "Python 3.9 (--python) is outside of ==3.10.*", "use --python 3.10"),
        ("<3", {}, "every Python that envpack supports is outside of <3", "change the range in the file"),
    ],
)
def test_what_is_outside_of_the_range_is_refused_with_both(python_range, how, says, hint):
    with pytest.raises(InputError) as caught:
        choose(python_range, **how)
    assert caught.value.kind == "other-python"
    assert caught.value.message == f"{says}, which the requirements allow"
    assert caught.value.hint.startswith(hint)
    assert caught.value.where == "/r/m/environment.yml:3"


def test_requirements_without_the_line_of_their_range_are_named_as_a_whole():
    for source, where in ((Path("/r/m/pyproject.toml"), "/r/m/pyproject.toml"), (None, "")):
        with pytest.raises(InputError) as caught:
            choose_python(
                Requirements(python_range=">=3.11", source=source),
                said=("3.9", "--python", ""),
                had=tuple,
                release=find_release("24.10"),
                here=lambda _: set(),
            )
        assert caught.value.where == where


def test_a_python_that_is_not_supported_is_refused():
    for how in ({"option": "3.99"}, {"project": "3"}, {"exact": "3.99"}):
        with pytest.raises(UsageError):
            choose("", **how)
