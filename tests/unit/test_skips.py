"""In CI, a skip that tests/allowed_skips.toml does not list fails the run, in one process and in several."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.skips import ALLOWED

CHECKOUT = Path(__file__).parents[2]
CONFTEST = """from pathlib import Path
from tests.skips import judge_skips

def pytest_configure(config):
    judge_skips(config, Path(__file__).with_name("allowed.toml"))
"""
TESTS = """import pytest

@pytest.mark.parametrize("number", [1, 2])
def test_it(number):
    pytest.skip(f"needs {number} GPUs")

# Reported as skipped, with another attribute: an expected failure, which the list need not name.
@pytest.mark.xfail(run=False)
def test_later():
    raise ValueError

def test_good():
    pass
"""
MODULE = "import pytest\npytest.skip('nothing here', allow_module_level=True)\n"


@pytest.fixture
def outcome(tmp_path):
    """Runs tests and returns the exit status of pytest and the errors that it prints."""

    def run(*allowed, ci="true", words=()):
        (tmp_path / "pytest.ini").write_text("[pytest]\n")
        (tmp_path / "conftest.py").write_text(CONFTEST)
        (tmp_path / "test_odd.py").write_text(TESTS)
        (tmp_path / "test_whole.py").write_text(MODULE)
        entries = [f"{{ test = '{test}', reason = '{reason}' }}" for test, reason in allowed]
        (tmp_path / "allowed.toml").write_text(f"skip = [{', '.join(entries)}]\n")
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *words],
            cwd=tmp_path,
            env={**os.environ, "CI": ci, "PYTHONPATH": str(CHECKOUT)},
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, {line for line in done.stdout.splitlines() if line.startswith("error:")}

    return run


@pytest.mark.parametrize("words", [(), ("-n", "2")], ids=["one process", "two processes"])
def test_a_skip_that_is_not_listed_with_its_reason_fails(outcome, words):
    listed = [("test_odd.py::test_it", "needs 1 *"), ("test_odd.py::test_good", "needs 2 *")]
    code, errors = outcome(*listed, words=words)
    assert code == pytest.ExitCode.TESTS_FAILED
    assert errors == {
        "error: this skip is not in tests/allowed_skips.toml: test_odd.py::test_it[2]: needs 2 GPUs",
        "error: this skip is not in tests/allowed_skips.toml: test_whole.py: nothing here",
    }


def test_listed_skips_and_expected_failures_are_accepted(outcome):
    listed = [("test_odd.py::test_it", "needs * GPUs"), ("test_whole.py", "nothing here")]
    assert outcome(*listed) == (pytest.ExitCode.OK, set())


def test_outside_of_ci_every_skip_is_accepted(outcome):
    assert outcome(ci="") == (pytest.ExitCode.OK, set())


def test_the_list_names_tests_that_exist():
    for entry in tomllib.loads(ALLOWED.read_text(encoding="utf-8"))["skip"]:
        file, _, name = entry["test"].partition("::")
        assert f"def {name}(" in (CHECKOUT / file).read_text(encoding="utf-8"), entry
