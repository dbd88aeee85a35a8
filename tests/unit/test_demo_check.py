"""`make demo` looks for its Pythons before it installs anything, with nothing but the standard library."""

import subprocess
import sys
from pathlib import Path

import pytest

CHECK = Path(__file__).parents[2] / "ci/demo.py"


def test_missing_pythons_are_named_with_a_fix(tmp_path):
    variables = {"HOME": str(tmp_path), "PYENV_ROOT": str(tmp_path), "PATH": str(tmp_path)}
    # -S and -I: no installed package can help.
    done = subprocess.run(
        [sys.executable, "-S", "-I", CHECK, "--check"], env=variables, capture_output=True, text=True, check=False
    )
    if done.returncode == 0:
        pytest.skip("the system's own folders hold every Python of the demo")
    assert done.returncode == 1
    first, second = done.stderr.splitlines()
    assert first.startswith("error: the demo needs Python 3.")
    assert "shared libpython" in first
    assert second.startswith("  fix: ")
