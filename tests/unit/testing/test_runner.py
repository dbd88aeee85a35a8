"""`envpack test`: how pytest is run, what it reports, and the fixture that it provides."""

import json
import sys
from pathlib import Path

import pytest

from envpack import testing
from envpack.repository import open_model
from envpack.support.errors import InputError, UsageError
from envpack.testing import find_tests, run_tests, runner

pytest_plugins = ["pytester"]

PASSES = {"id": "t", "outcome": "passed", "seconds": 0.0, "message": ""}


def test_tests_lie_in_the_folders_of_models(tmp_path):
    for name in ("a/1/model.py", "a/tests/test_x.py", "a/test_y.py", "a/test_a.py", "a/other.py", "b/1/model.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    models = [open_model(tmp_path / name) for name in "ab"]
    folder = tmp_path / "a"
    assert find_tests(models) == (
        testing.TestedModel("a", (folder / "tests", folder / "test_a.py", folder / "test_y.py")),
        testing.TestedModel("b", ()),
    )


class Pytest:
    """In place of a process: notes how it was started, and ends as the test says."""

    def __init__(self, monkeypatch, code=0, outcomes="[]"):
        self.code, self.outcomes, self.commands = code, outcomes, []
        monkeypatch.setattr(runner, "run_in_foreground", self.run)

    def run(self, command, *, env, output):
        self.commands.append((list(map(str, command)), output))
        option = next(word for word in self.commands[-1][0] if word.startswith("--envpack-outcomes="))
        if self.outcomes is not None:
            Path(option.partition("=")[2]).write_text(self.outcomes)
        return self.code


def test_pytest_gets_the_repository_and_what_the_user_adds(monkeypatch, tmp_path):
    started = Pytest(monkeypatch, outcomes=json.dumps([PASSES]))
    tests = [
        testing.TestedModel("a", (tmp_path / "a/tests",)),
        testing.TestedModel("b", ()),
        testing.TestedModel("c", (tmp_path / "c/test_c.py",)),
    ]
    run = run_tests(tmp_path, tests, on_server=True, server=Path("/srv/triton"), arguments=["-k", "x"], output=7)
    assert (run.ok, run.tests) == (True, (PASSES,))
    ((command, output),) = started.commands
    assert (output, command[:5]) == (7, [sys.executable, "-m", "pytest", "-p", "envpack"])
    for word in ("--import-mode=importlib", f"--rootdir={tmp_path}", f"--envpack-repository={tmp_path}", "--triton",
                 "--triton-server=/srv/triton"):  # fmt: skip
        assert word in command
    cache = command[command.index("-o") + 1]
    assert cache.startswith("cache_dir=")
    assert not cache.startswith(f"cache_dir={tmp_path}")  # nothing is written into the repository
    assert command[-4:] == [str(tmp_path / "a/tests"), str(tmp_path / "c/test_c.py"), "-k", "x"]
    assert any(word.startswith("cache_dir=") and not word.startswith(f"cache_dir={tmp_path}/a") for word in command)
    run_tests(tmp_path, tests)
    command, output = started.commands[1]
    assert (output, [word for word in command if word.startswith("--triton")]) == (None, [])


@pytest.mark.parametrize(
    ("code", "outcomes", "kind"),
    [
        (4, "[]", "pytest-usage"),
        (5, "[]", "tests-missing"),
        (3, "[]", "pytest-failed"),
        (-9, "[]", "pytest-failed"),
        (0, None, "pytest-failed"),
    ],
)
def test_a_run_without_a_result_is_an_error(monkeypatch, tmp_path, code, outcomes, kind):
    Pytest(monkeypatch, code, outcomes)
    with pytest.raises((InputError, UsageError)) as raised:
        run_tests(tmp_path, [testing.TestedModel("a", (tmp_path,))])
    assert raised.value.kind == kind


@pytest.mark.parametrize("code", [1, 2])
def test_a_run_with_failures_has_a_result(monkeypatch, tmp_path, code):
    Pytest(monkeypatch, code, json.dumps([PASSES]))
    run = run_tests(tmp_path, [testing.TestedModel("a", (tmp_path,))])
    assert (run.ok, run.tests) == (False, (PASSES,))


def test_models_without_tests_are_an_error(monkeypatch, tmp_path):
    started = Pytest(monkeypatch)
    with pytest.raises(InputError, match="no model has tests") as raised:
        run_tests(tmp_path, [testing.TestedModel("a", ())])
    assert (raised.value.kind, raised.value.where, started.commands) == ("tests-missing", str(tmp_path), [])


def test_without_pytest_the_package_is_named(monkeypatch, tmp_path):
    monkeypatch.setattr(runner.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UsageError) as raised:
        run_tests(tmp_path, [testing.TestedModel("a", (tmp_path,))])
    assert (raised.value.kind, raised.value.where) == ("pytest-missing", sys.executable)


# The plugin


TESTS = """
import pytest

def test_passes():
    pass

def test_fails():
    assert 1 == 2, "one is not two"

@pytest.mark.skip(reason="not today")
def test_skipped():
    pass

@pytest.mark.xfail(reason="known")
def test_xfails():
    assert False

@pytest.mark.xfail
def test_xpasses():
    pass

@pytest.fixture
def broken():
    raise ValueError("no set-up")

def test_error(broken):
    pass

@pytest.fixture
def untidy():
    yield
    raise ValueError("no tear-down")

def test_untidy(untidy):
    pass

def test_twice(untidy):
    assert False, "first"
"""


def test_the_outcome_of_each_test_is_recorded(pytester, tmp_path):
    pytester.makepyfile(test_it=TESTS, test_broken="import nothing_of_this_name")
    file = tmp_path / "outcomes.json"
    pytester.runpytest_inprocess("-p", "no:randomly", f"--envpack-outcomes={file}", "--continue-on-collection-errors")
    found = {entry["id"].rpartition("::")[2]: entry for entry in json.loads(file.read_text())}
    outcomes = {name: (entry["outcome"], entry["message"].splitlines()[:1]) for name, entry in found.items()}
    broken = outcomes.pop("test_broken.py")
    assert broken[0] == "error"
    assert "nothing_of_this_name" in found["test_broken.py"]["message"]
    assert outcomes == {
        "test_passes": ("passed", []),
        "test_fails": ("failed", ["AssertionError: one is not two"]),
        "test_skipped": ("skipped", ["Skipped: not today"]),
        "test_xfails": ("xfailed", ["assert False"]),
        "test_xpasses": ("xpassed", []),
        "test_error": ("error", ["ValueError: no set-up"]),
        "test_untidy": ("error", ["ValueError: no tear-down"]),
        "test_twice": ("failed", ["AssertionError: first"]),
    }
    assert all(entry["seconds"] >= 0 for entry in found.values())
    assert sum(entry["seconds"] for entry in found.values()) > 0


USES = """
import pytest
from envpack.testing import ModelError

def test_it(triton_model):
    with pytest.raises(ModelError) as raised:
        triton_model("absent")
    print("HAS", raised.value.text)
"""


@pytest.mark.parametrize("how", ["above", "option", "setting", "setting of a file"])
def test_the_fixture_uses_the_repository_of_the_user(pytester, tmp_path, how):
    (tmp_path / "models/m/1").mkdir(parents=True)
    (tmp_path / "models/m/1/model.py").touch()
    options = []
    place = pytester.path
    if how == "above":
        place = tmp_path / "models/m"
        options = [place / "test_uses.py"]
    if how == "option":
        options = [f"--envpack-repository={tmp_path / 'models'}"]
    if how.startswith("setting"):
        pytester.makeini(f"[pytest]\nenvpack_repository = {tmp_path / 'models'}\n")
    (place / "test_uses.py").write_text(USES)
    result = pytester.runpytest_inprocess("-s", *options)
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines([f"*HAS Request for unknown model: 'absent' is not found. {tmp_path}/models has m"])
