"""The table of broken repositories in the guide is the catalogue's, and the catalogue is what it claims to be."""

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from ci import fault_table
from tests.faults.repositories import CATALOGUE, Broken
from tests.faults.repositories.running import Report, assert_reported

SCRIPT = Path(__file__).parents[2] / "ci/fault_table.py"


def check():
    return subprocess.run([sys.executable, SCRIPT, "--check"], capture_output=True, text=True, check=False)


def test_the_table_is_up_to_date():
    done = check()
    assert done.returncode == 0, done.stdout


def test_a_table_that_is_not_is_told(monkeypatch, tmp_path, capsys):
    old = tmp_path / "guide.md"
    old.write_text(f"before\n{fault_table.BEGIN}\n\n| old |\n\n{fault_table.END}\nafter\n")
    monkeypatch.setattr(fault_table, "GUIDE", old)
    monkeypatch.setattr(fault_table, "ROOT", tmp_path)
    assert fault_table.main(check=True) == 1
    assert "python ci/fault_table.py" in capsys.readouterr().out
    assert fault_table.main(check=False) == 0
    assert fault_table.main(check=True) == 0
    text = old.read_text()
    assert text.startswith("before\n")
    assert text.endswith("\nafter\n")
    assert "| old |" not in text


def test_the_page_counts_the_diagnoses():
    (line,) = (line for line in fault_table.table().splitlines() if "distinct" in line)
    repositories, diagnoses = map(int, re.findall(r"\d+", line))
    assert repositories == len(CATALOGUE)
    assert diagnoses == len({(entry.kind, entry.reason, entry.fix) for entry in CATALOGUE}) < repositories


def test_entries_of_one_diagnosis_are_counted_once(monkeypatch):
    first = CATALOGUE[0]
    twice = (first, replace(first, id="again", what="the same again"), replace(first, id="other", fix="another fix"))
    monkeypatch.setattr(fault_table, "CATALOGUE", twice)
    assert fault_table.table().startswith("3 broken repositories or machines, 2 distinct diagnoses ")


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
    guide = (SCRIPT.parents[1] / "docs/reference/errors.md").read_text()
    assert [entry.id for entry in CATALOGUE if f"\n### {entry.kind}\n" not in guide] == []
