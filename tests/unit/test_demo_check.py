"""`make demo` says what it will use, or what it cannot do without, before it installs anything."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
CHECK = ROOT / "ci/demo.py"
# The check on a machine without any Python in the usual folders.
WITHOUT_PYTHONS = f"""
import runpy, sys
sys.path.insert(0, {str(ROOT)!r})
from envpack.conda import interpreters
interpreters._usual_folders = lambda: iter(())
sys.argv[0] = {str(CHECK)!r}
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def check(folder, repository, *program, **variables):
    """Run the check with nothing but the standard library: -S and -I hide every installed package."""
    own = {"HOME": str(folder), "PYENV_ROOT": str(folder), "PATH": str(folder)} | variables
    command = [sys.executable, "-S", "-I", *(program or (CHECK,)), "--check", repository]
    return subprocess.run(command, env=own, capture_output=True, text=True, check=False)


def test_the_pythons_of_this_machine_are_named(tmp_path):
    done = check(tmp_path, tmp_path / "demo")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Pythons of this machine with a shared libpython: ")


def test_a_python_that_can_neither_be_found_nor_fetched_is_an_error_with_a_fix(tmp_path):
    done = check(tmp_path, tmp_path / "demo", "-c", WITHOUT_PYTHONS)
    assert (done.returncode, done.stdout) == (0, "Pythons of this machine with a shared libpython: none\n")
    done = check(tmp_path, tmp_path / "demo", "-c", WITHOUT_PYTHONS, UV_PYTHON_DOWNLOADS="never")
    assert done.returncode == 1
    first, second = done.stderr.splitlines()
    assert first.startswith("error: the demo needs a Python with a shared libpython; this machine has none")
    assert second == (
        "  fix: unset UV_PYTHON_DOWNLOADS, or install one: on Debian and Ubuntu, apt-get install python3-dev"
    )


def test_a_folder_that_triton_cannot_serve_from_is_refused_with_a_fix(tmp_path):
    folder = tmp_path / "Projekte für Späße/demo"
    done = check(tmp_path, folder)
    assert done.returncode == 1
    first, second = done.stderr.splitlines()
    assert first == f"error: {folder}: the path contains ' ', and servers pass it to a shell unquoted"
    assert second == "  fix: put the demo's models into another folder: make demo DEMO=/tmp/envpack-demo"
    assert check(tmp_path, tmp_path / "Späße").returncode == 0
