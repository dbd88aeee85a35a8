"""Runs the tests that lie in the folders of models."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from envpack.repository.selection import named_models
from envpack.settings.project import Project
from envpack.support.bounded_reading import parse_json
from envpack.support.errors import InputError, UsageError
from envpack.support.installation import install_beside
from envpack.support.processes import run_in_foreground
from envpack.support.temp_dirs import temp_dir
from envpack.testing.opening import find_runtime, where

# What pytest exits with.
_FAILED, _INTERRUPTED, _USAGE, _NO_TESTS = 1, 2, 4, 5


@dataclass(frozen=True)
class TestRun:
    """What became of tests."""

    ok: bool  # whether none failed
    tests: tuple[dict[str, Any], ...]  # for each test its ``id``, ``outcome``, ``seconds`` and ``message``
    models: tuple[str, ...]  # the names of those whose tests were to run
    where: str  # where they ran, in words
    on_server: bool  # whether that is a real server

    def of(self, model: str) -> tuple[dict[str, Any], ...]:
        return tuple(test for test in self.tests if test["id"].partition("/")[0] == model)


def _test_paths(folder: Path) -> list[Path]:
    tests = folder / "tests"
    return [*([tests] if tests.is_dir() else []), *sorted(folder.glob("test_*.py"))]


def run_tests(
    project: Project,  # of the models' repository
    names: Sequence[str] = (),  # of the folders of models; without any, all
    *,
    is_local: bool = False,  # run the models without a server, though one can be started
    show: Callable[[str, bool], None] = lambda where, on_server: None,  # noqa: ARG005
    arguments: Sequence[str] = (),  # more arguments for pytest
    output: int | None = None,  # descriptor for pytest's output, None for its own
) -> TestRun:
    """Run the tests of models, ``tests/`` and ``test_*.py`` in the folder of each, by the pytest of this Python."""
    repository = project.repository
    models = named_models(repository, names)
    runtime = None if is_local else find_runtime(project)
    show(where(runtime), runtime is not None)
    if importlib.util.find_spec("pytest") is None:
        what = "tests need pytest beside envpack"
        fix = install_beside("pytest")
        raise UsageError("pytest-missing", what, fix, sys.executable)
    paths = [path for model in models for path in _test_paths(model.folder)]
    if not paths:
        raise _no_tests(repository, "no model has tests")
    said = project.of()
    with temp_dir("tests") as scratch:
        outcomes = scratch / "outcomes.json"
        command = [
            *(sys.executable, "-m", "pytest", "-p", "envpack", "--import-mode=importlib"),
            *(f"--rootdir={repository}", f"--envpack-repository={repository}", f"--envpack-outcomes={outcomes}"),
            *("-o", f"cache_dir={scratch / 'cache'}"),  # not in the repository
            *(() if runtime else ("--envpack-local",)),
            *(("--envpack-gpu",) if said.gpu and runtime else ()),
            *((f"--triton-server={said.server}",) if said.server and runtime else ()),
            *(f"--envpack-timeout={said.timeout}", f"--envpack-caller={os.getpid()}"),
            *map(str, paths),
            *arguments,
        ]
        code = run_in_foreground(command, env=dict(os.environ), output=output)
        _check(code, repository, has_outcomes=outcomes.is_file())
        found = tuple(parse_json(outcomes.read_text(encoding="utf-8")))
        tested = tuple(model.name for model in models)
        return TestRun(code == 0, found, tested, where(runtime), on_server=runtime is not None)


def _check(code: int, repository: Path, *, has_outcomes: bool) -> None:
    if code == _USAGE:
        what = "pytest rejects its arguments; it says above why"
        fix = "correct what follows -- on the command line"
        raise UsageError("pytest-usage", what, fix)
    if code == _NO_TESTS and has_outcomes:
        raise _no_tests(repository, "pytest found no tests to run")
    if code not in (0, _FAILED, _INTERRUPTED) or not has_outcomes:
        what = f"pytest ended with {code} instead of a result: a test ended its process, or pytest failed"
        fix = "its output above has the reason"
        raise InputError("pytest-failed", what, fix, str(repository))


def _no_tests(repository: Path, reason: str) -> InputError:
    return InputError(
        "tests-missing", reason, "write them in MODEL/tests/test_*.py or MODEL/test_*.py", str(repository)
    )
