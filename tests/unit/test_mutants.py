"""The driver of `make mutants`: its faults, and its sandbox."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from coverage import CoverageData

from tests.tables import every_row

ROOT = Path(__file__).parents[2]
MUTANTS = ROOT / "ci/mutants"


@pytest.fixture
def operators(monkeypatch):
    monkeypatch.syspath_prepend(str(MUTANTS))
    import operators

    yield operators
    del sys.modules["operators"]


def changes(operators, source):
    found = operators.find_mutants("x.py", source.encode())
    return {mutant.apply(source.encode()).decode().strip() for mutant in found}


@every_row(
    ("source", "faults"),
    [
        ("a < b", {"(a <= b)", "(a >= b)"}),
        ("a in b", {"(a not in b)"}),
        ("a and b", {"(a or b)"}),
        ("not a", {"(a)"}),
        ("x = 1 << a", {"x = (2) << a", "x = (1 >> a)"}),
        ("x = 'kind'", {"x = 'mutant'"}),
        ("x = 'two words'", set()),
        ("x: int = True", {"x: int = False"}),
        ("f(a, b, k=c)", {"pass", "(f(b, a, k=c))", "(f(a, b))"}),
        ("x.y = a", {"pass"}),
        ("x += a", {"pass", "x -= a"}),
        ("def f():\n    return a", {"def f():\n    return None"}),
        ("if a:\n    raise b", {"if (not a):\n    raise b", "if a:\n    pass"}),
        ("while a:\n    continue", {"while (not a):\n    continue", "while a:\n    break"}),
        ("[x for x in y if z]", {"[x for x in y if (not z)]"}),
        ("f'{a < b}'", set()),
        ("x = cast('T', y)", set()),
        ("x = zip(a, b, strict=True)", {"x = (zip(b, a, strict=True))"}),
        ("x = threading.Thread(name='word', target=f)", {"x = (threading.Thread(name='word'))"}),
        ("x = temp_dir('word')", set()),
        (
            "x = f(strict=True, name='word')",
            {
                "x = (f(name='word'))",
                "x = (f(strict=True))",
                "x = f(strict=False, name='word')",
                "x = f(strict=True, name='mutant')",
            },
        ),
    ],
)
def test_faults_of_a_statement(operators, source, faults):
    assert changes(operators, source) == faults


def test_a_fault_shows_the_lines_that_it_changes(operators):
    source = "é = 'x y'\nif a:\n    f(b)\n".encode()
    mutant = next(mutant for mutant in operators.find_mutants("x.py", source) if mutant.operator == "statement removed")
    assert mutant.changed(source) == (["f(b)"], ["pass"])
    assert (mutant.line, mutant.lines, mutant.imported) == (3, (3, 3), True)


def test_a_fault_knows_the_function_that_it_is_in(operators):
    source = "x = 1\ndef outer():\n    def inner(y=2):\n        return 3\n    return 4\nx = 5\n"
    found = {
        mutant.line: (mutant.function, mutant.imported) for mutant in operators.find_mutants("x.py", source.encode())
    }
    assert found == {1: ("", True), 3: ("outer", False), 4: ("inner", False), 5: ("outer", False), 6: ("", True)}


@pytest.fixture
def targets(monkeypatch):
    monkeypatch.syspath_prepend(str(MUTANTS))
    import targets

    yield targets
    del sys.modules["targets"]


def test_each_function_is_in_one_group_of_targets(targets):
    found = {
        group: [str(file.relative_to(ROOT)) for file in targets.target_files(ROOT, group)]
        for group in ("core", "outer")
    }
    assert all(Path(file).exists() for files in found.values() for file in files)
    both = set(found["core"]) & set(found["outer"])
    assert both == {"envpack/workflow/stubs.py"}
    for function, group in (("_placed", "core"), ("build_stubs", "outer")):
        assert [name for name in found if targets.is_target(name, *both, function)] == [group]
    for file, groups in {
        "envpack/archive/layer.py": ["core"],
        "envpack/workflow/cache.py": ["core"],
        "envpack/workflow/build.py": ["outer"],
        "envpack/store/blobs.py": ["outer"],
        "envpack/local/python/envpack_run.py": [],
        "envpack/cli/main.py": [],
    }.items():
        assert [name for name in found if file in found[name]] == groups, file


def test_a_table_is_reached_by_the_tests_that_import_it(monkeypatch):
    monkeypatch.syspath_prepend(str(MUTANTS))
    import operators
    import reach

    tests = ("tests/unit/a/test_x.py::test", "tests/unit/a/test_y.py::test")
    texts = {"tests/unit/a/test_x.py": "from envpack.a.table import ROWS", "tests/unit/a/test_y.py": "ROWS"}
    found = reach.Reach(seconds=dict.fromkeys(tests, 1.0), texts=texts)
    mutant = operators.Mutant("envpack/a/table.py", 9, 0, 1, "x", "constant", (9, 9), "")
    assert mutant.imported
    assert found.tests_for(mutant) == [["tests/unit/a/test_x.py::test"]]
    for name in ("operators", "reach"):
        del sys.modules[name]


def test_the_program_of_a_task_is_reached_by_the_tests_of_its_worker(monkeypatch):
    monkeypatch.syspath_prepend(str(MUTANTS))
    import operators
    import reach

    found = reach.Reach(seconds={"tests/unit/fleet/test_x.py::test": 1.0})
    found.lines["envpack/fleet/worker.py"] = {3: {"tests/unit/fleet/test_x.py::test"}}
    mutant = operators.Mutant("envpack/fleet/child.py", 9, 0, 1, "x", "constant", (9, 9), "main")
    assert found.tests_for(mutant) == [["tests/unit/fleet/test_x.py::test"]]
    for name in ("operators", "reach"):
        del sys.modules[name]


def test_the_lines_of_a_program_are_those_of_the_test_that_starts_it(tmp_path):
    environment = {
        **os.environ,
        "PYTHONPATH": f"{MUTANTS / 'programs'}:{ROOT}",
        "ENVPACK_MUTANTS_PROGRAMS": str(tmp_path),
        "ENVPACK_MUTANTS_TEST": "tests/unit/test_x.py::test",
    }
    program = "from envpack.support.text import counted; print(counted(2, 'file'))"
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, env=environment)
    assert (done.stdout, done.stderr) == ("2 files\n", "")
    (file,) = tmp_path.iterdir()
    found = CoverageData(str(file))
    found.read()
    lines = found.contexts_by_lineno(str(ROOT / "envpack/support/text.py"))
    assert {test for tests in lines.values() for test in tests} == {"tests/unit/test_x.py::test"}


SCRIPT = """
import os, sys
from pathlib import Path
from sandbox import confine

confine(Path(sys.argv[1]))
def write(path):
    try:
        Path(path).write_text("x")
    except OSError as error:
        return type(error).__name__
    return "written"
print(write(sys.argv[1] + "/inside"), write(sys.argv[2] + "/outside"), os.listdir("/dev/shm"))
try:
    os.unlink(sys.argv[2] + "/kept")
except OSError as error:
    print(type(error).__name__)
print(all(int(name) < 100 for name in os.listdir("/proc") if name.isdigit()))
"""


def test_code_with_a_fault_cannot_write_elsewhere_or_see_other_processes(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(MUTANTS))
    import sandbox

    for name in ("scratch", "other"):
        (tmp_path / name).mkdir()
    (tmp_path / "other/kept").touch()
    (tmp_path / "script.py").write_text(SCRIPT)
    command = sandbox.command(tmp_path / "script.py", tmp_path / "scratch", tmp_path / "other")
    if subprocess.run(["unshare", "--user", "true"], check=False, capture_output=True).returncode:
        pytest.skip("this machine allows no user namespaces")
    environment = {**os.environ, "PYTHONPATH": str(MUTANTS)}
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
    assert done.stdout.splitlines() == ["written PermissionError []", "PermissionError", "True"], done.stderr
    assert (tmp_path / "other/kept").exists()


@pytest.mark.parametrize("name", ["accepted.toml", "accepted_outer.toml"])
def test_every_accepted_survivor_has_a_reason_and_its_line_exists(name):
    entries = tomllib.loads((MUTANTS / name).read_text()).get("survivor", ())
    for entry in entries:
        text = " ".join(line.strip() for line in (ROOT / entry["file"]).read_text().splitlines())
        assert entry["line"] in text, entry
        assert len(entry["reason"]) > 20, entry
