"""`envpack test`: how pytest is run, what it reports, and the fixture that it provides."""

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from envpack import testing
from envpack.cli.main import run as cli
from envpack.settings.project import open_project
from envpack.settings.table import Settings
from envpack.support.errors import EnvpackError, InputError, UsageError
from envpack.testing import plugin, run_tests, runner
from tests.waiting import soon

pytest_plugins = ["pytester"]

PASSES = {"id": "t", "outcome": "passed", "seconds": 0.0, "message": ""}


def project_of(folder, *files):
    """A project that has these files, of which the test of the plugin needs no content."""
    for name in ("a/1/model.py", "b/1/model.py", *files):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    return open_project(folder, Settings(timeout=7))


class Pytest:
    """In place of a process: notes how it was started, and ends as the test says."""

    def __init__(self, monkeypatch, code=0, outcomes="[]"):
        self.code, self.outcomes, self.commands = code, outcomes, []
        monkeypatch.setattr(runner, "run_in_foreground", self.run)

    def run(self, command, *, env, output):
        self.commands.append((list(map(str, command)), output))
        options = dict(
            word.split("=", 1) for word in self.commands[-1][0] if word.startswith("--envpack-") and "=" in word
        )
        self.said = json.loads(Path(options["--envpack-said"]).read_text())
        if self.outcomes is not None:
            Path(options["--envpack-outcomes"]).write_text(self.outcomes)
        return self.code


def test_pytest_gets_the_tests_of_models_and_what_the_user_adds(monkeypatch, tmp_path):
    started = Pytest(monkeypatch, outcomes=json.dumps([PASSES]))
    project = project_of(tmp_path, "a/tests/test_x.py", "a/test_y.py", "a/test_a.py", "a/other.py")
    run = run_tests(project, is_local=True, arguments=["-k", "x"], output=7)
    paths = (tmp_path / "a/tests", tmp_path / "a/test_a.py", tmp_path / "a/test_y.py")
    assert run == testing.TestRun(
        True,
        (PASSES,),
        ("a", "b"),
        "locally, without a server",
        on_server=False,
    )
    ((command, output),) = started.commands
    assert (output, command[:5]) == (7, [sys.executable, "-m", "pytest", "-p", "envpack"])
    for word in (
        *("--import-mode=importlib", f"--rootdir={tmp_path}", f"--envpack-repository={tmp_path}"),
        "--envpack-local",
    ):
        assert word in command
    cache = command[command.index("-o") + 1]
    assert cache.startswith("cache_dir=")
    assert not cache.startswith(f"cache_dir={tmp_path}")  # nothing is written into the repository
    assert command[-5:] == [*map(str, paths), "-k", "x"]


def test_a_model_whose_files_hold_no_test_is_named(monkeypatch, tmp_path, capsys):
    found = {**PASSES, "id": "a/test_a.py::test_it"}
    Pytest(monkeypatch, outcomes=json.dumps([found]))
    project_of(tmp_path, "a/test_a.py", "b/tests/helper.py")
    assert cli(["test", "--local", "--repository", str(tmp_path)]) == 0
    assert capsys.readouterr().err.splitlines()[-1] == "no test ran of: b"
    assert cli(["test", "--local", "--repository", str(tmp_path), "--json"]) == 0
    models = json.loads(capsys.readouterr().out)["models"]
    assert models == [{"name": "a", "tests": [found]}, {"name": "b", "tests": []}]


def test_a_model_whose_tests_are_all_skipped_is_named(monkeypatch, tmp_path, capsys):
    outcomes = {"a": ("passed", "skipped"), "b": ("skipped", "skipped")}
    found = [{**PASSES, "id": f"{name}/t.py::t", "outcome": one} for name, ones in outcomes.items() for one in ones]
    Pytest(monkeypatch, outcomes=json.dumps(found))
    project_of(tmp_path, "a/test_a.py", "b/test_b.py")
    assert cli(["test", "--local", "--repository", str(tmp_path)]) == 0
    assert capsys.readouterr().err.splitlines()[-1] == "no test ran of: b"


def test_models_run_on_the_server_that_can_be_started(monkeypatch, tmp_path):
    started = Pytest(monkeypatch, outcomes=json.dumps([PASSES]))
    runtime = SimpleNamespace(release="24.10", image="")
    monkeypatch.setattr(runner, "find_runtime", lambda project: runtime)
    shown = []
    project = open_project(project_of(tmp_path, "a/test_a.py").repository, Settings(server=Path("/srv/triton")))
    run = run_tests(project, ["a"], show=lambda *said: shown.append(said))
    assert (run.where, run.on_server) == shown[0]
    assert shown == [("on Triton 24.10, a process of this machine", True)]
    ((command, _),) = started.commands
    assert "--envpack-local" not in command
    assert started.said == {"server": "/srv/triton"}


@pytest.mark.parametrize(
    ("code", "outcomes", "kind"),
    [
        (4, "[]", "pytest-usage"),
        (5, "[]", "tests-missing"),
        (0, "[]", "tests-missing"),  # as of --collect-only
        (0, json.dumps([PASSES | {"outcome": ""}]), "tests-missing"),  # as of --setup-plan
        (5, None, "pytest-failed"),
        (3, "[]", "pytest-failed"),
        (-6, "[]", "pytest-failed"),
        (-9, "[]", "system-limit"),  # as for want of memory
        (0, None, "pytest-failed"),
    ],
)
def test_a_run_without_a_result_is_an_error(monkeypatch, tmp_path, code, outcomes, kind):
    Pytest(monkeypatch, code, outcomes)
    with pytest.raises(EnvpackError) as raised:
        run_tests(project_of(tmp_path, "a/test_a.py"), is_local=True)
    assert raised.value.kind == kind


@pytest.mark.parametrize("code", [1, 2, 6])  # the last one: too many warnings
def test_a_run_with_failures_has_a_result(monkeypatch, tmp_path, code):
    Pytest(monkeypatch, code, json.dumps([PASSES]))
    run = run_tests(project_of(tmp_path, "a/test_a.py"), is_local=True)
    assert (run.ok, run.tests) == (False, (PASSES,))


@pytest.mark.parametrize("outcome", ["failed", "error", ""])
def test_a_run_is_not_ok_because_pytest_exits_with_0(monkeypatch, tmp_path, outcome):
    found = (PASSES, PASSES | {"id": "u", "outcome": outcome})
    Pytest(monkeypatch, 0, json.dumps(found))
    run = run_tests(project_of(tmp_path, "a/test_a.py"), is_local=True)
    assert (run.ok, run.tests) == (False, found)


def test_models_without_tests_are_an_error(monkeypatch, tmp_path):
    started = Pytest(monkeypatch)
    with pytest.raises(InputError, match="no model has tests") as raised:
        run_tests(project_of(tmp_path), is_local=True)
    assert (raised.value.kind, raised.value.where, started.commands) == ("tests-missing", str(tmp_path), [])


def test_without_pytest_the_package_is_named(monkeypatch, tmp_path):
    monkeypatch.setattr(runner.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UsageError) as raised:
        run_tests(project_of(tmp_path, "a/test_a.py"), is_local=True)
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

def test_skips(untidy):
    pytest.skip("later")
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
        "test_skips": ("error", ["ValueError: no tear-down"]),
    }
    assert all(entry["seconds"] >= 0 for entry in found.values())
    assert sum(entry["seconds"] for entry in found.values()) > 0


def test_the_last_run_of_a_test_that_a_plugin_repeats_counts(tmp_path):
    recorded = plugin.Outcomes(tmp_path / "outcomes.json")
    for outcome in ("rerun", "passed"):  # as pytest-rerunfailures reports them
        report = {
            "nodeid": "t",
            "when": "call",
            "duration": 0.5,
            "passed": outcome == "passed",
            "longrepr": (0, 0, "no"),
        }
        recorded.pytest_runtest_logreport(SimpleNamespace(outcome=outcome, **report))
    recorded.pytest_sessionfinish()
    assert json.loads((tmp_path / "outcomes.json").read_text()) == [PASSES | {"seconds": 1.0}]


USES = """
import pytest
from envpack.testing import ModelError

def test_it(triton_model):
    with pytest.raises(ModelError) as raised:
        triton_model("absent")
    print("HAS", raised.value.text)
"""


@pytest.mark.parametrize("how", ["above", "option", "setting"])
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
    if how == "setting":
        pytester.makeini(f"[pytest]\nenvpack_repository = {tmp_path / 'models'}\n")
    (place / "test_uses.py").write_text(USES)
    result = pytester.runpytest_inprocess("-s", *options)
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines([f"*HAS there is no model 'absent': {tmp_path}/models has m"])


CALLER = """import sys
from pathlib import Path
from envpack.settings.project import open_project
from envpack.testing import run_tests
run_tests(open_project(Path(sys.argv[1])), is_local=True)
"""


def test_pytest_ends_with_its_caller(tmp_path):
    """A caller that is killed left pytest, its server and its models to the end of the tests."""
    project_of(tmp_path, "a/test_x.py")
    pids = tmp_path / "pids"
    (tmp_path / "a/test_x.py").write_text(
        f"import os, time\ndef test_x():\n    open({str(pids)!r}, 'w').write(f'{{os.getpid()}} ')\n    time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", CALLER, tmp_path], stdout=subprocess.DEVNULL) as caller:
        assert soon(lambda: pids.is_file() and pids.read_text().endswith(" "))
        caller.kill()
    status = Path(f"/proc/{pids.read_text().strip()}/stat")

    def ended():
        try:
            return status.read_text().rpartition(")")[2].split()[0] == "Z"
        except OSError:
            return True

    assert soon(ended, seconds=20)
