"""Records the outcome of each test for `envpack test`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from envpack.support.replacement import write_text


class Outcomes:
    """A plugin of pytest that writes what became of each test."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._tests: dict[str, dict[str, Any]] = {}

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Take a file whose tests could not be collected."""
        if report.failed:
            self._tests[report.nodeid] = _entry(report.nodeid) | {"outcome": "error", "message": report.longreprtext}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take what became of one phase of a test."""
        entry = self._tests.setdefault(report.nodeid, _entry(report.nodeid))
        entry["seconds"] += report.duration
        outcome = _outcome(report)
        if outcome and entry["outcome"] in ("", "passed"):
            entry["outcome"] = outcome
            entry["message"] = _message(report)

    def pytest_sessionfinish(self) -> None:
        """Write the file."""
        write_text(self._file, json.dumps(list(self._tests.values())))


def _entry(test: str) -> dict[str, Any]:
    return {"id": test, "outcome": "", "seconds": 0.0, "message": ""}


def _outcome(report: pytest.TestReport) -> str:
    if report.when != "call":
        return {"failed": "error", "skipped": "skipped"}.get(report.outcome, "")
    if hasattr(report, "wasxfail"):
        return "xfailed" if report.skipped else "xpassed"
    return report.outcome


def _message(report: pytest.TestReport) -> str:
    if report.passed:
        return ""
    if isinstance(report.longrepr, tuple):
        return report.longrepr[2]
    crash = getattr(report.longrepr, "reprcrash", None)
    return str(crash.message) if crash is not None else report.longreprtext
