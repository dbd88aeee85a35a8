"""The pytest plugin and `envpack test`, as users run them: pytest in a process of its own."""

import json
import os
import re
import subprocess
import sys

import pytest

from envpack.server.launch import find_server
from envpack.support.errors import ServerError
from envpack.support.placed_files import STUB_NAME
from tests.cache import kept_cache
from tests.local.tested_repository import ONLY_SERVED, TESTS, write, write_repository
from tests.server.model_environments import ModelEnvironments


def pytest_generate_tests(metafunc):
    """Not the Pythons of the other modules."""


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    return write_repository(tmp_path_factory.mktemp("tested") / "models", ModelEnvironments(kept_cache()))


@pytest.fixture
def run_pytest(tmp_path):
    def run(*arguments, folder=tmp_path):
        options = ("-p", "no:randomly", "-p", "no:cacheprovider", "--import-mode=importlib")
        command = [sys.executable, "-m", "pytest", *options, *map(str, arguments)]
        return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)

    return run


def run_envpack(*arguments, **variables):
    command = [sys.executable, "-m", "envpack", "test", *map(str, arguments)]
    return subprocess.run(command, env={**os.environ, **variables}, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("where", ["local", "server"])
def test_the_tests_of_a_repository(repository, where):
    if where == "server":
        try:
            find_server()
        except ServerError as error:
            pytest.skip(str(error))
    models = sorted({name.partition("/")[0] for name in TESTS} - set(ONLY_SERVED if where == "local" else ()))
    words = (*models, *(("--local",) if where == "local" else ()))
    done = run_envpack("--repository", repository, "--json", *words, "--", "-p", "no:randomly")
    document = json.loads(done.stdout)
    tests = [test for model in document["models"] for test in model["tests"]]
    assert {test["id"]: test["outcome"] for test in tests if test["outcome"] != "passed"} == {}, done.stderr
    assert len(tests) == sum(
        text.count("def test_") for name, text in TESTS.items() if name.partition("/")[0] in models
    )
    assert (done.returncode, document["ok"], document["on_server"]) == (0, True, where == "server")
    assert [model["name"] for model in document["models"]] == models
    assert done.stderr.startswith(
        "models run locally, without a server" if where == "local" else "models run on Triton "
    )
    assert list(repository.glob(".*")) == []


def test_plain_pytest_finds_the_repository_above_the_test(repository, run_pytest):
    done = run_pytest(repository / "caller", repository / "double/tests", "-k", "other_models or batches")
    assert "2 passed" in done.stdout


@pytest.mark.thorough
@pytest.mark.parametrize("how", ["option", "setting"])
def test_the_repository_can_be_elsewhere(repository, run_pytest, tmp_path, how):
    write(tmp_path / "test_it.py", TESTS["caller/test_caller.py"].replace("\n        ", "\n"))
    given = os.path.relpath(repository, tmp_path)
    if how == "setting":
        write(tmp_path / "pytest.ini", f"[pytest]\nenvpack_repository = {given}\n")
    done = run_pytest("test_it.py", *([f"--envpack-repository={given}"] if how == "option" else []))
    assert "1 passed" in done.stdout


def test_a_failure_shows_the_traceback_of_the_model_and_what_it_prints(repository, run_pytest, tmp_path):
    source = (repository / "double/1/model.py").read_text().replace("self.calls += 1", "print('from the model')")
    write(tmp_path / "models/wrong/1/model.py", source)
    config = (repository / "double/config.pbtxt").read_text()
    write(tmp_path / "models/wrong/config.pbtxt", config)
    write(
        tmp_path / "models/wrong/test_it.py",
        "def test_it(triton_model):\n    triton_model('wrong').infer(X=[])\n",
    )
    (tmp_path / "models/wrong" / STUB_NAME).symlink_to(repository / "double" / STUB_NAME)
    done = run_pytest(tmp_path / "models")
    assert done.returncode == 1
    assert re.search(r"^> +triton_model\('wrong'\)\.infer\(X=\[\]\)$", done.stdout, re.MULTILINE)
    assert "ValueError: nothing to double" in done.stdout
    assert f"{tmp_path}/models/wrong/1/model.py" in done.stdout
    assert "from the model" in done.stdout
    assert "envpack/testing" not in done.stdout


def test_outcomes_and_exit_codes(tmp_path):
    """Of tests without a model, since nothing of this depends on one."""
    write(tmp_path / "model/1/model.py", "")
    write(
        tmp_path / "model/tests/test_it.py",
        "import pytest\n"
        "def test_right(): pass\n"
        "def test_wrong(): assert 1 == 2\n"
        "def test_skipped(): pytest.skip('not today')\n"
        "@pytest.fixture\ndef failing(): raise ValueError('no')\n"
        "def test_error(failing): pass\n"
        # Not a test of ours: one of the outcomes that `envpack test` counts.
        "@pytest.mark.xfail\ndef test_expected(): assert False\n",
    )
    write(tmp_path / "model/test_unreadable.py", "def\n")
    write(tmp_path / "untested/1/model.py", "")

    def outcomes(*arguments):
        done = run_envpack("--repository", tmp_path, "--json", *arguments)
        document = json.loads(done.stdout)
        if "error" in document:
            return done.returncode, document["error"]["kind"]
        tests = [test for model in document["models"] for test in model["tests"]]
        return done.returncode, {test["id"].rpartition("test_")[2]: test["outcome"] for test in tests}

    assert outcomes() == (1, {"unreadable.py": "error"})
    (tmp_path / "model/test_unreadable.py").unlink()
    expected = {"right": "passed", "wrong": "failed", "skipped": "skipped", "error": "error", "expected": "xfailed"}
    assert outcomes() == (1, expected)
    assert outcomes("model", "--", "-k", "right") == (0, {"right": "passed"})
    assert outcomes("untested") == (3, "tests-missing")
    assert outcomes("--", "-k", "no_such_test") == (3, "tests-missing")
    for listing in ("--collect-only", "--setup-plan", "--fixtures"):
        assert outcomes("--", listing) == (3, "tests-missing")
    assert outcomes("--", "--help") == (3, "pytest-failed")
    assert outcomes("--", "--no-such-option") == (2, "pytest-usage")
    assert outcomes("nobody") == (3, "model-missing")
    assert outcomes("--server", tmp_path / "nowhere")[0] == 6
    assert outcomes("--local", "--server", tmp_path) == (2, "usage")
    assert outcomes("--triton") == (2, "usage")


@pytest.mark.parametrize(
    ("ends", "code", "kind", "said"),
    [
        ("os._exit(5)", 3, "pytest-failed", "pytest ended with status 5 instead of a result"),
        ("os.abort()", 3, "pytest-failed", "pytest ended by SIGABRT instead of a result"),
        ("os.kill(os.getpid(), 9)", 7, "system-limit", "a program ended by SIGKILL"),  # as for want of memory
    ],
)
def test_a_test_that_ends_its_process_is_no_missing_test(tmp_path, ends, code, kind, said):
    write(tmp_path / "model/1/model.py", "")
    write(tmp_path / "model/test_it.py", f"import os\ndef test_it(): {ends}\n")
    done = run_envpack("--repository", tmp_path, "--json", "--local")
    assert (done.returncode, json.loads(done.stdout)["error"]["kind"]) == (code, kind)
    assert said in done.stderr


@pytest.mark.parametrize(
    ("ends", "outcomes"),
    [
        ("def test_it():\n    pytest.exit('enough', returncode=0)\ndef test_other(): pass\n", ["passed", ""]),
        ("def test_it():\n    assert False\ndef test_other(): pass\n", ["passed", "failed"]),
    ],
)
def test_no_exit_status_of_pytest_makes_a_test_pass(tmp_path, ends, outcomes):
    write(tmp_path / "model/1/model.py", "")
    write(tmp_path / "conftest.py", "def pytest_sessionfinish(session): session.exitstatus = 0\n")
    write(tmp_path / "model/test_it.py", f"import pytest\ndef test_first(): pass\n{ends}")
    done = run_envpack("--repository", tmp_path, "--json", "--local", "--", "-x", "-p", "no:randomly")
    document = json.loads(done.stdout)
    assert [test["outcome"] for test in document["models"][0]["tests"]] == outcomes
    assert (done.returncode, document["ok"]) == (1, False)


def test_without_pytest(tmp_path):
    write(tmp_path / "model/1/model.py", "")
    write(tmp_path / "model/test_it.py", "def test_it(): pass\n")
    write(tmp_path / "none/sitecustomize.py", "import sys\nsys.modules['pytest'] = None\n")
    done = run_envpack("--repository", tmp_path, PYTHONPATH=str(tmp_path / "none"))
    assert done.returncode == 2
    assert "tests need pytest beside envpack (pytest-missing)" in done.stderr
    assert "-m pip install pytest numpy\n" in done.stderr


HANGS = {
    "local": "the process of 'double' was ended: more than 1 s passed, and execute() was running; 0 responses came; ",
    "server": "no response within 1 s; ",
}


@pytest.mark.parametrize("where", HANGS)
def test_a_model_that_hangs_fails_its_test_in_time(tmp_path, where):
    models = write_repository(tmp_path / "models", ModelEnvironments(kept_cache()))
    code = (models / "double/1/model.py").read_text().replace("self.calls += 1", "time.sleep(600)")
    (models / "double/1/model.py").write_text(code)
    words = ["double", "--repository", models, "--timeout", "1", "--json", "--", "-k", "test_arrays_and_lists"]
    done = run_envpack(*(["--local"] if where == "local" else []), *words)
    (test,) = (test for model in json.loads(done.stdout)["models"] for test in model["tests"])
    assert (done.returncode, test["outcome"]) == (1, "failed")
    assert HANGS[where] in test["message"]
    assert f"{models}/double/1/model.py:12 in execute was running" in test["message"]


def test_the_plugin_imports_nothing_until_a_test_uses_it(tmp_path):
    code = (
        "import sys, pytest\n"
        "before = set(sys.modules)\n"
        "import envpack.testing.plugin\n"
        "print(*sorted(set(sys.modules) - before))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    ours = {name for name in done.stdout.split() if name.startswith("envpack.")}
    assert ours == {"envpack.support", "envpack.support.lazy_imports", "envpack.testing", "envpack.testing.plugin"}
    assert not {"numpy", "click", "google.protobuf", "requests"} & set(done.stdout.split())
