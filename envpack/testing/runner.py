"""Runs the tests that lie in the folders of models."""

from __future__ import annotations

import importlib.util
import json
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
from envpack.support.processes import ended_by_limit, how_ended, run_in_foreground
from envpack.support.temp_dirs import temp_dir
from envpack.testing.opening import find_runtime, where

# What pytest exits with.
_INTERRUPTED, _INTERNAL_ERROR, _USAGE = 2, 3, 4
_NOT_OK = ("", "failed", "error")  # outcomes; the first one is that of a test that did not end
_SAID_ABOVE = "its output above has the reason"


@dataclass(frozen=True)
class TestRun:
    """What became of tests."""

    ok: bool  # whether none failed, and each that began ended
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
        fix = install_beside("pytest", "numpy")  # in which tests get the outputs
        raise UsageError("pytest-missing", what, fix, sys.executable)
    paths = [path for model in models for path in _test_paths(model.folder)]
    if not paths:
        fix = "write them in MODEL/tests/test_*.py or MODEL/test_*.py"
        raise InputError("tests-missing", "no model has tests", fix, str(repository))
    with temp_dir("tests") as scratch:
        outcomes, said = scratch / "outcomes.json", scratch / "said.json"
        said.write_text(json.dumps(project.said.values(), default=str), encoding="utf-8")
        command = [
            *(sys.executable, "-m", "pytest", "-p", "envpack", "--import-mode=importlib"),
            *(f"--rootdir={repository}", f"--envpack-repository={repository}", f"--envpack-outcomes={outcomes}"),
            *("-o", f"cache_dir={scratch / 'cache'}"),  # not in the repository
            *(() if runtime else ("--envpack-local",)),
            *(f"--envpack-said={said}", f"--envpack-caller={os.getpid()}"),
            *map(str, paths),
            *arguments,
        ]
        code = run_in_foreground(command, env=dict(os.environ), output=output)
        found = _read(outcomes, code, repository)
        # A conftest.py can let pytest exit with 0 whatever became of the tests.
        ok = code == 0 and not any(test["outcome"] in _NOT_OK for test in found)
        tested = tuple(model.name for model in models)
        return TestRun(ok, found, tested, where(runtime), on_server=runtime is not None)


def _read(outcomes: Path, code: int, repository: Path) -> tuple[dict[str, Any], ...]:
    if code == _USAGE:
        what = "pytest rejects its arguments, its settings or a conftest.py; it says above why"
        raise UsageError("pytest-usage", what, "correct what it names")
    if code < 0 or code == _INTERNAL_ERROR or not outcomes.is_file():  # others may be those of a plugin
        if ended := ended_by_limit(code):
            raise ended
        how = how_ended(code)
        what = f"pytest ended {how} instead of a result: it ran no tests, it failed, or a test ended its process"
        raise InputError("pytest-failed", what, _SAID_ABOVE, str(repository))
    found = tuple(parse_json(outcomes.read_text(encoding="utf-8")))
    if code != _INTERRUPTED and not any(test["outcome"] for test in found):
        fix = f"{_SAID_ABOVE}; it has MODEL/tests and MODEL/test_*.py to run"
        raise InputError("tests-missing", "pytest ran no tests", fix, str(repository))
    return found
