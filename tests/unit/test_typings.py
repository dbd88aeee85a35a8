"""The type stubs that editors and mypy read for models."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TYPINGS = Path(__file__).parents[2] / "typings"
MODEL = Path(__file__).parent / "typed_model/model.py"


@pytest.fixture
def typings(tmp_path):
    """The stubs where mypy looks for them when they are not installed, which is without the name of a distribution."""
    for folder in TYPINGS.iterdir():
        (tmp_path / folder.name.removesuffix("-stubs")).symlink_to(folder)
    return tmp_path


def check(typings, *models):
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", f"--cache-dir={typings / 'cache'}", *models]
    environment = {**os.environ, "MYPYPATH": str(typings)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_a_typed_model_passes_strict_checks_and_a_wrong_type_is_found(typings, tmp_path):
    """In one run: mypy spends its time on the standard library."""
    wrong = tmp_path / "wrong.py"
    text = MODEL.read_text()
    wrong.write_text(text.replace("pb_utils.TritonError.INVALID_ARG", "3"))
    line = text[: text.index("pb_utils.TritonError.INVALID_ARG")].count("\n") + 1
    done = check(typings, MODEL, wrong)
    expected = f'{wrong}:{line}: error: Argument 2 to "TritonError" has incompatible type "int"; expected'
    assert [found.startswith(expected) for found in done.stdout.splitlines()] == [True, False], done.stdout
    assert done.stdout.splitlines()[-1] == "Found 1 error in 1 file (checked 2 source files)"
