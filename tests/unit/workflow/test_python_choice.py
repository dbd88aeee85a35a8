"""The Python of a model: one rule for all formats of requirements."""

from pathlib import Path

import pytest

from envpack.requirements.model import Requirements
from envpack.settings.releases import find_release
from envpack.support.errors import InputError, UsageError
from envpack.workflow.python_choice import choose_python
from tests.tables import every_row


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
    ("how", "minor", "named"),
    [
        ({}, "3.10", False),
        ({"exact": "3.9"}, "3.9", True),
        ({"exact": "3.9", "had": (("3.8", "envpack.lock"),)}, "3.9", True),
        ({"option": "3.12"}, "3.12", True),
        ({"project": "3.12"}, "3.12", True),
        ({"had": (("3.12", "envpack.lock"), ("3.8", "x"))}, "3.12", True),
    ],
)
def test_what_is_said_comes_first_then_what_the_model_has(how, minor, named):
    chosen = choose("", **how)
    assert (chosen.minor, chosen.named, chosen.note) == (minor, named, "")


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


@every_row(
    ("python_range", "how", "says", "hint"),
    [
        (">=3.11", {"option": "3.9"}, "Python 3.9 (--python) is outside of >=3.11", "--python 3.11"),
        (">=3.11", {"project": "3.9"}, "Python 3.9 (envpack.toml) is outside of >=3.11", "--python 3.11"),
        ("", {"option": "3.9", "exact": "3.10"}, "Python 3.9 (--python) is outside of ==3.10.*", "--python 3.10"),
        ("<3", {}, "every Python that envpack supports is outside of <3", "change the range"),
    ],
)
def test_what_is_outside_of_the_range_is_refused_with_both(python_range, how, says, hint):
    with pytest.raises(InputError) as caught:
        choose(python_range, **how)
    assert caught.value.kind == "other-python"
    assert says in caught.value.message
    assert hint in caught.value.hint
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
