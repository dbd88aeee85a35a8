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


def check(typings, model):
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", f"--cache-dir={typings / 'cache'}", model]
    environment = {**os.environ, "MYPYPATH": str(typings)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_a_typed_model_passes_strict_checks(typings):
    done = check(typings, MODEL)
    assert done.returncode == 0, done.stdout


def test_a_wrong_type_is_found(typings, tmp_path):
    wrong = tmp_path / "wrong.py"
    wrong.write_text(MODEL.read_text().replace("pb_utils.TritonError.INVALID_ARG", "3"))
    assert 'Argument 2 to "TritonError" has incompatible type "int"' in check(typings, wrong).stdout
