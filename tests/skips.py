"""In CI, a test may skip only if tests/allowed_skips.toml lists it with its reason."""

import os
import tomllib
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

ALLOWED = Path(__file__).with_name("allowed_skips.toml")


class SkipJudge:
    """A plugin of pytest that fails a run in which a test skipped for a reason that is not listed.

    It judges in the process that reports to the user, which under pytest-xdist is the controller.

    Args:
        allowed: the list, a file.
    """

    def __init__(self, allowed):
        listed = tomllib.loads(allowed.read_text(encoding="utf-8"))["skip"]
        self._allowed = {(entry["test"], entry["reason"]) for entry in listed}
        self._refused = []

    def pytest_runtest_logreport(self, report):
        self._judge(report)

    def pytest_collectreport(self, report):
        self._judge(report)

    def _judge(self, report):
        if not report.skipped or hasattr(report, "wasxfail"):
            return
        _, _, text = report.longrepr
        test, reason = report.nodeid.partition("[")[0], text.removeprefix("Skipped: ")
        if not any(test == name and fnmatchcase(reason, pattern) for name, pattern in self._allowed):
            self._refused.append(f"{report.nodeid}: {reason}")

    def pytest_terminal_summary(self, terminalreporter):
        for skip in self._refused:
            terminalreporter.write_line(f"error: this skip is not in tests/{ALLOWED.name}: {skip}", red=True)

    def pytest_sessionfinish(self, session):
        if self._refused and session.exitstatus in {pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED}:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED


def judge_skips(config, allowed=ALLOWED):
    """Judge the skips of this run if CI is set."""
    if os.environ.get("CI") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(SkipJudge(allowed))
