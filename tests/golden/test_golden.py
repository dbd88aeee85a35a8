"""Outputs are as they were when `make golden` last wrote them."""

import difflib
import subprocess
import sys
from pathlib import Path

import pytest

from tests.golden.parts import FILES, PARTS, QUICK, REAL
from tests.golden.programs import missing

ROOT = Path(__file__).parents[2]
CHANGED = "\nIf this is what you want, run `python -m tests.golden {}` and commit what it writes."


def write(folder, *parts):
    """Write parts by a process of their own, since outputs depend on the variables of a process."""
    command = [sys.executable, "-m", "tests.golden", "--to", folder, *parts]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The outputs of this checkout that need nothing."""
    return write(tmp_path_factory.mktemp("golden"), *QUICK)


@pytest.mark.parametrize("part", QUICK)
def test_outputs_are_as_before(part, written):
    compare(FILES / part, written / part)


def test_outputs_of_real_builds_and_servers_are_as_before(tmp_path):
    if lacking := missing():
        pytest.skip(lacking)
    write(tmp_path, *REAL)
    for part in REAL:
        compare(FILES / part, tmp_path / part)


def compare(expected, found):
    difference = differences(expected, found)
    if difference:
        pytest.fail(difference + CHANGED.format(expected.name), pytrace=False)


def test_every_golden_file_belongs_to_a_part():
    assert {folder.name for folder in FILES.iterdir()} == set(PARTS)


def differences(expected: Path, found: Path) -> str:
    """The unified diff of two folders, below the names of files that only one of them has."""
    before, after = texts_in(expected), texts_in(found)
    lines = [f"{name}: no case writes this file\n" for name in sorted(before.keys() - after.keys())]
    lines += [f"{name}: this file is missing\n" for name in sorted(after.keys() - before.keys())]
    for name in sorted(before.keys() | after.keys()):
        names = (f"golden/{expected.name}/{name}", f"now/{found.name}/{name}")
        lines += difflib.unified_diff(before.get(name, []), after.get(name, []), *names)
    return "".join(lines)


def texts_in(folder: Path) -> dict[str, list[str]]:
    files = [file for file in folder.rglob("*") if file.is_file()]
    return {str(file.relative_to(folder)): file.read_text(encoding="utf-8").splitlines(keepends=True) for file in files}


def test_a_difference_names_files_and_lines(tmp_path):
    for folder, files in (("one", {"same": "a\n", "other": "a\nb\n", "gone": ""}), ("two", {"same": "a\n", "new": ""})):
        for name, text in files.items():
            (tmp_path / folder / name).parent.mkdir(exist_ok=True)
            (tmp_path / folder / name).write_text(text)
    (tmp_path / "two/other").write_text("a\nc\n")
    assert differences(tmp_path / "one", tmp_path / "one") == ""
    assert differences(tmp_path / "one", tmp_path / "two").splitlines() == [
        "gone: no case writes this file",
        "new: this file is missing",
        "--- golden/one/other",
        "+++ now/two/other",
        "@@ -1,2 +1,2 @@",
        " a",
        "-b",
        "+c",
    ]
