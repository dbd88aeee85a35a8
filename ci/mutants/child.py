"""Runs tests on a copied tree, in the sandbox of `sandbox.py`: reads an `Order` per line, and writes an exit code.

Every order runs in a fork, which imports envpack anew; what the tests import besides is imported only once.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Any, TypedDict

import pytest
from sandbox import confine

# Imported before the first fork, so that the run of each mutant need not import it; unittest.mock is what tests import.
_IMPORTED_ONCE = (
    *("_hypothesis_pytestplugin", "hypothesis", "hypothesis.strategies", "pytest_timeout", "xdist.plugin", "coverage"),
    *(
        "asyncio",
        "backports.zstd",
        "click",
        "docker",
        "elftools.elf.elffile",
        "filelock",
        "google.protobuf.text_format",
    ),
    *("isal.igzip", "jinja2", "jsonschema", "kubernetes_validate", "numpy", "packaging.specifiers", "pathspec"),
    *("pip_requirements_parser", "platformdirs", "requests", "rich.console", "tarfile", "unittest.mock", "yaml"),
)


class Order(TypedDict):
    """What to run.

    Attributes:
        tests: test files or ids, in order.
        reach: the file to write with each test's seconds and the lines that it executes; ``""`` does not measure them.
        programs: folder for the lines that programs execute which the tests start, see ``programs/``; ``""``
            does not measure these.
        limit: seconds after which the tests are killed.

    """

    tests: list[str]
    reach: str
    programs: str
    limit: float


class Chosen:
    """Selects tests by id and runs them in the order of the list."""

    def __init__(self, tests: list[str]) -> None:
        self._order = {test: number for number, test in enumerate(tests)}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = sorted(
            (item for item in items if item.nodeid in self._order), key=lambda item: self._order[item.nodeid]
        )


class Reach:
    """Measures which test executes which lines of envpack, and how long it takes."""

    def __init__(self, tree: str, programs: str) -> None:
        import coverage

        self._tree, self._programs = Path(tree), programs
        self._coverage = coverage.Coverage(data_file=None, source=[f"{tree}/envpack"], config_file=False)
        self._seconds: dict[str, float] = {}
        self._unfit: set[str] = set()
        self._coverage.start()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Any:
        self._coverage.switch_context(item.nodeid)
        if self._programs:
            os.environ |= {"ENVPACK_MUTANTS_PROGRAMS": self._programs, "ENVPACK_MUTANTS_TEST": item.nodeid}
        started = time.perf_counter()
        try:
            return (yield)
        finally:
            self._seconds[item.nodeid] = round(time.perf_counter() - started, 3)
            self._coverage.switch_context("")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not report.passed:
            self._unfit.add(report.nodeid)

    def result(self) -> dict[str, Any]:
        """Seconds of each test that passed, and the tests of each line by file."""
        from coverage import CoverageData
        from coverage.exceptions import CoverageException

        self._coverage.stop()
        data = self._coverage.get_data()
        for file in Path(self._programs).glob("program.*") if self._programs else ():
            with contextlib.suppress(CoverageException):  # of a program that was killed while it wrote
                program = CoverageData(str(file))
                program.read()
                data.update(program)
        fit = {test: seconds for test, seconds in self._seconds.items() if test not in self._unfit}
        lines = {
            str(Path(file).relative_to(self._tree)): {
                line: [test for test in tests if test in fit] for line, tests in data.contexts_by_lineno(file).items()
            }
            for file in data.measured_files()
        }
        return {"seconds": fit, "unfit": sorted(self._unfit), "lines": lines}


def _run(order: Order, tree: str, scratch: str) -> int:
    """Exit code of pytest."""
    options = ["-q", "--no-header", "--tb=no", "-p", "no:cacheprovider", "-p", "no:randomly", "--hypothesis-seed=0"]
    options += ["--part", "gate"]  # what `make test` does not run kills nothing before a change lands
    options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # plugins that were imported before the fork
    options += ["--rootdir", tree, "-c", f"{tree}/pyproject.toml", f"--basetemp={scratch}/basetemp"]
    files = dict.fromkeys(test.split("::")[0] for test in order["tests"])
    chosen = [Chosen(order["tests"])] if any("::" in test for test in order["tests"]) else []
    if not order["reach"]:
        try:
            return int(pytest.main([*options, "-x", *files], plugins=chosen))
        except (ExceptionGroup, pytest.PytestWarning):  # what a fault leaves open is an error after the last test
            return int(pytest.ExitCode.TESTS_FAILED)
    reach = Reach(tree, order["programs"])
    code = int(pytest.main([*options, *files], plugins=[*chosen, reach]))
    Path(order["reach"]).write_text(json.dumps(reach.result()), encoding="utf-8")
    return code


def _run_in_fork(order: Order, tree: str, scratch: str) -> int | None:
    """Exit code of pytest; None if it did not end in time. Nothing that the tests started stays."""
    child = os.fork()
    if child == 0:
        try:
            os._exit(_run(order, tree, scratch))
        except BaseException:
            traceback.print_exc()
            os._exit(70)
    until = time.monotonic() + order["limit"]
    done = status = 0
    while not done and time.monotonic() < until:
        done, status = os.waitpid(child, os.WNOHANG)
        time.sleep(0 if done else 0.02)
    with contextlib.suppress(ProcessLookupError):
        os.kill(-1, signal.SIGKILL)  # every process of the sandbox but this one
    if not done:
        os.waitpid(child, 0)
        return None
    return os.waitstatus_to_exitcode(status)


def main(tree: str, scratch: str) -> None:
    confine(Path(scratch))
    # The finder of an editable installation would import the original instead of the copy.
    sys.meta_path[:] = [finder for finder in sys.meta_path if type(finder).__name__ != "ScikitBuildRedirectingFinder"]
    sys.path[:] = [tree, *(path for path in sys.path[1:] if not Path(path, "envpack/__init__.py").exists())]
    replies = os.fdopen(os.dup(1), "w", buffering=1)
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)
    for name in _IMPORTED_ONCE:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    for line in sys.stdin:
        replies.write(json.dumps(_run_in_fork(json.loads(line), tree, scratch)) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
