"""The catalogue of broken repositories is what it claims to be."""

from dataclasses import replace
from pathlib import Path

import pytest

from ci.docs import faults, pages
from tests.faults.repositories import CATALOGUE, Broken
from tests.faults.repositories.running import Report, assert_reported

GUIDE = Path(__file__).parents[2] / "docs/reference/errors.md"


def test_entries_of_one_diagnosis_are_counted_once(monkeypatch):
    first = CATALOGUE[0]
    twice = (first, replace(first, id="again", what="the same again"), replace(first, id="other", fix="another fix"))
    monkeypatch.setattr(faults, "CATALOGUE", twice)
    assert faults.table("").startswith("3 broken repositories or machines, 2 distinct diagnoses ")


FAULT = Broken(
    "x", "it is broken", lambda _: None, "bad", "it is … broken", "mend it", found_by="verify", also=("cold",)
)
GOOD = (Report("bad", "it is quite broken", "mend it now", "load"), Report("cold", "warm it", "warm it", "process"))


def test_the_reports_of_an_entry_are_accepted():
    assert_reported(FAULT, list(GOOD))


@pytest.mark.parametrize(
    "reports",
    [
        [],
        GOOD[1:],
        [*GOOD, Report("worse", "it is wet", "dry it", "load")],
        [*GOOD, GOOD[0]],
        [*GOOD, GOOD[1]],
        GOOD[:1],
        [replace(GOOD[0], reason="it is quite bent"), GOOD[1]],
        [replace(GOOD[0], fix="leave it"), GOOD[1]],
        [replace(GOOD[0], kind="worse"), GOOD[1]],
        [replace(GOOD[0], step="inference"), GOOD[1]],
    ],
    ids=["none", "missing", "more", "twice", "listed twice", "not all", "reason", "fix", "kind", "step"],
)
def test_other_reports_than_those_of_an_entry_are_refused(reports):
    with pytest.raises(AssertionError):
        assert_reported(FAULT, list(reports))


def test_forty_different_things_are_broken():
    assert len({entry.id for entry in CATALOGUE}) == len(CATALOGUE) >= 40
    assert len({entry.what for entry in CATALOGUE}) == len(CATALOGUE)


def test_every_entry_says_what_is_wrong_and_what_to_do():
    assert [entry.id for entry in CATALOGUE if not (entry.kind and entry.reason and entry.fix)] == []


def test_every_kind_has_its_section():
    guide = pages.expand(GUIDE.read_text())
    assert [entry.id for entry in CATALOGUE if f"\n### {entry.kind}\n" not in guide] == []
