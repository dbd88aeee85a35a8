"""The table of broken repositories in the guide is the catalogue's, and the catalogue is what it claims to be."""

import subprocess
import sys
from pathlib import Path

from ci import fault_table
from tests.faults.repositories import CATALOGUE

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


def test_forty_different_things_are_broken():
    assert len({entry.id for entry in CATALOGUE}) == len(CATALOGUE) >= 40
    assert len({entry.what for entry in CATALOGUE}) == len(CATALOGUE)


def test_every_entry_says_what_is_wrong_and_what_to_do():
    assert [entry.id for entry in CATALOGUE if not (entry.kind and entry.reason and entry.fix)] == []


def test_every_kind_has_its_section():
    guide = (SCRIPT.parents[1] / "docs/reference/errors.md").read_text()
    assert [entry.id for entry in CATALOGUE if f"\n### {entry.kind}\n" not in guide] == []
