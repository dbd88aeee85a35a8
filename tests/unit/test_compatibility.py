"""ci/compatibility.py claims what tests have shown, and nothing else."""

import importlib.util
import sys
from pathlib import Path

import pytest

from envpack.settings.pythons import SUPPORTED
from envpack.settings.releases import all_releases, find_release

SCRIPT = Path(__file__).parents[2] / "ci/compatibility.py"


@pytest.fixture(scope="module")
def compatibility():
    spec = importlib.util.spec_from_file_location("compatibility", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules["compatibility"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["compatibility"]


PASSES = "def test_a(record_property):\n    record_property('numpy', '2.2.6')\n"
FAILS = "def test_b():\n    raise ValueError\n"
SKIPS = "import pytest\ndef test_c():\n    pytest.skip('no server here')\n"


@pytest.mark.parametrize(
    ("code", "word", "reasons"),
    [
        (PASSES, "verified", ()),
        (PASSES + FAILS, "failed", ("test_b",)),
        (PASSES + SKIPS, "–", ("no server here",)),
        (SKIPS + FAILS, "failed", ("test_b",)),
        ("", "–", ()),
        ("import nothing_of_this_name\n", "failed", None),
    ],
    ids=["passes", "fails", "skips", "skips and fails", "no test", "broken"],
)
def test_a_cell_is_what_its_tests_have_shown(compatibility, tmp_path, code, word, reasons):
    (tmp_path / "test_it.py").write_text(code)
    cell = compatibility._tested("verified", str(tmp_path / "test_it.py"))
    assert cell.word == word
    assert len(cell.reasons) == 1 if reasons is None else cell.reasons == reasons
    assert (cell.versions == {"numpy": "2.2.6"}) == (PASSES in code)


def test_a_release_that_no_test_names_is_not_called_checked(compatibility):
    assert compatibility._tested("layout-checked", str(SCRIPT.parent), "-k", "99.99").word == "–"


def test_the_page_has_a_row_for_each_release_and_a_column_for_each_python(compatibility):
    cell = compatibility.Cell
    releases = [find_release("24.10"), find_release("24.11")]
    cells = {
        ("24.10", "3.9"): cell("verified", (), {"python": "3.9.18", "numpy": "1.26.4"}),
        ("24.10", "3.10"): cell("failed", ("test_x",)),
        ("24.11", "3.9"): cell("layout-checked"),
        ("24.11", "3.10"): cell("–"),
    }
    page = compatibility.page(releases, ["3.9", "3.10"], cells, "2026-01-01")
    assert "| 24.10 | 2.51.0 | 24.10 | verified | failed |\n| 24.11 | 2.52.0 | 24.10 | layout-checked | – |\n" in page
    assert ": 1 verified, 1 layout-checked, 1 failed." in page
    assert "3.9.18 with NumPy 1.26.4" in page
    assert "24.10 from 0.7.0" in page
    assert "- Triton 24.10, Python 3.10: test_x\n" in page


def test_the_page_is_as_new_as_what_it_describes(compatibility):
    page = (SCRIPT.parents[1] / "docs/reference/compatibility.md").read_text(encoding="utf-8")
    assert f"<!-- describes: {compatibility.described()} -->" in page, (
        "releases.toml, the layouts, the Pythons or the version have changed since docs/reference/compatibility.md was "
        "written; run python ci/compatibility.py, with --add and --release or --python for a new one only"
    )


def test_a_comment_makes_no_page_old_and_a_layout_does(compatibility, monkeypatch, tmp_path):
    before = compatibility.described()
    layouts = (SCRIPT.parents[1] / "stub_src/abi/layouts.txt").read_text(encoding="utf-8")
    (tmp_path / "stub_src/abi").mkdir(parents=True)
    copy = tmp_path / "stub_src/abi/layouts.txt"
    monkeypatch.setattr(compatibility, "CHECKOUT", tmp_path)
    copy.write_text("# A comment.\n" + layouts.replace("\n", "\n\n"), encoding="utf-8")
    assert compatibility.described() == before
    copy.write_text(layouts.replace("Request 24.04 120", "Request 24.04 128"), encoding="utf-8")
    assert compatibility.described() != before


def test_the_page_says_how_many_pairs_continuous_integration_runs(compatibility):
    page = compatibility.page([], [], {}, "2026-01-01")
    in_wheels = sum(bool(release.wheel) for release in all_releases().values())
    assert f"`make test-all` runs {len(compatibility.SPREAD)} of the\n{in_wheels * len(SUPPORTED)} pairs" in page


def test_a_new_python_is_added_to_a_page(compatibility, monkeypatch, tmp_path):
    cell, output = compatibility.Cell, tmp_path / "page.md"
    releases = [find_release("24.10"), find_release("24.11")]
    before = {
        ("24.10", "3.8"): cell("verified", (), {"python": "3.8.18", "numpy": "1.24.4"}),
        ("24.10", "3.9"): cell("failed", ("test_x",)),
        ("24.11", "3.8"): cell("layout-checked"),
        ("24.11", "3.9"): cell("layout-checked"),
    }
    output.write_text(compatibility.page(releases, ["3.8", "3.9"], before, "2026-01-01"))
    added = cell("verified", (), {"python": "3.15.0", "numpy": "2.5.5"})
    monkeypatch.setattr(compatibility, "ring", lambda release, python: added)
    options = ["--release", "24.10", "--release", "24.11", "--python", "3.15", "--add", "--output", str(output)]
    monkeypatch.setattr(sys, "argv", ["compatibility.py", *options])
    assert compatibility.main() == 1  # something has failed
    page = output.read_text()
    new = {("24.10", "3.15"): added, ("24.11", "3.15"): cell("layout-checked")}
    assert compatibility.read_page(page) == before | new
    assert "on 2026-01-01 and, for Python 3.15, on 20" in page


def test_a_new_release_is_added_to_a_page(compatibility, monkeypatch, tmp_path):
    cell, output = compatibility.Cell("layout-checked"), tmp_path / "page.md"
    before = {("24.11", python): cell for python in compatibility.SUPPORTED}
    output.write_text(compatibility.page([find_release("24.11")], list(compatibility.SUPPORTED), before, "2026-01-01"))
    monkeypatch.setattr(compatibility, "layout_check", lambda release: cell)
    monkeypatch.setattr(sys, "argv", ["compatibility.py", "--release", "24.12", "--add", "--output", str(output)])
    assert compatibility.main() == 0
    page = output.read_text()
    assert compatibility.read_page(page) == before | {("24.12", python): cell for python in compatibility.SUPPORTED}
    assert "on 2026-01-01 and, for Triton 24.12, on 20" in page
