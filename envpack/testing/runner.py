"""Runs the tests that lie in the folders of models."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from envpack.repository import Model
from envpack.support.bounded_reading import parse_json
from envpack.support.errors import InputError, UsageError
from envpack.support.processes import run_in_foreground
from envpack.support.replacement import temp_dir

# What pytest exits with.
_FAILED, _INTERRUPTED, _USAGE, _NO_TESTS = 1, 2, 4, 5


@dataclass(frozen=True)
class TestedModel:
    """A model and the files of its tests.

    Attributes:
        name: of the model.
        paths: its folder ``tests`` and its files ``test_*.py``, those that exist.
    """

    name: str
    paths: tuple[Path, ...]


@dataclass(frozen=True)
class TestRun:
    """What became of tests.

    Attributes:
        ok: whether none failed.
        tests: for each test its ``id``, ``outcome``, ``seconds`` and ``message``.
    """

    ok: bool
    tests: tuple[dict[str, Any], ...]


def find_tests(models: Sequence[Model]) -> tuple[TestedModel, ...]:
    """The tests of models: ``tests/`` and ``test_*.py`` in the folder of each."""
    return tuple(TestedModel(model.name, tuple(_test_paths(model.folder))) for model in models)


def _test_paths(folder: Path) -> list[Path]:
    tests = folder / "tests"
    return [*([tests] if tests.is_dir() else []), *sorted(folder.glob("test_*.py"))]


def run_tests(
    repository: Path,
    models: Sequence[TestedModel],
    *,
    on_server: bool = False,
    server: Path | None = None,
    timeout: float = 120.0,
    arguments: Sequence[str] = (),
    output: int | None = None,
) -> TestRun:
    """Run the tests of models by the pytest of this Python."""
    if importlib.util.find_spec("pytest") is None:
        raise UsageError(
            "tests need pytest beside envpack",
            kind="pytest-missing",
            where=sys.executable,
            hint=f"{sys.executable} -m pip install pytest",
        )
    paths = [path for model in models for path in model.paths]
    if not paths:
        raise _no_tests(repository, "no model has tests")
    with temp_dir("tests") as scratch:
        outcomes = scratch / "outcomes.json"
        command = [
            *(sys.executable, "-m", "pytest", "-p", "envpack", "--import-mode=importlib"),
            *(f"--rootdir={repository}", f"--envpack-repository={repository}", f"--envpack-outcomes={outcomes}"),
            *("-o", f"cache_dir={scratch / 'cache'}"),  # not in the repository
            *(("--triton",) if on_server else ()),
            *((f"--triton-server={server}",) if server else ()),
            f"--envpack-timeout={timeout:g}",
            *map(str, paths),
            *arguments,
        ]
        code = run_in_foreground(command, env=dict(os.environ), output=output)
        _check(code, repository, has_outcomes=outcomes.is_file())
        return TestRun(code == 0, tuple(parse_json(outcomes.read_text(encoding="utf-8"))))


def _check(code: int, repository: Path, *, has_outcomes: bool) -> None:
    if code == _USAGE:
        raise UsageError(
            "pytest rejects its arguments; it says above why",
            kind="pytest-usage",
            hint="correct what follows -- on the command line",
        )
    if code == _NO_TESTS:
        raise _no_tests(repository, "pytest found no tests to run")
    if code not in (0, _FAILED, _INTERRUPTED) or not has_outcomes:
        raise InputError(
            f"pytest ended with {code} instead of a result",
            kind="pytest-failed",
            where=str(repository),
            hint="its output above has the reason",
        )


def _no_tests(repository: Path, reason: str) -> InputError:
    return InputError(
        reason,
        kind="tests-missing",
        where=str(repository),
        hint="write them in MODEL/tests/test_*.py or MODEL/test_*.py",
    )
