"""The Pythons that were exercised under the real server; ENVPACK_MINIMUM_PYTHONS says how many a run must reach."""

import os

import pytest


class ExercisedPythons:
    """A plugin of pytest that names them when the run ends, and fails a run that did not reach enough."""

    def __init__(self, minimum):
        self._minimum = minimum
        self._pythons = set()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item):
        report = yield
        python = item.callspec.params.get("python") if hasattr(item, "callspec") else None
        report.python = python if isinstance(python, str) and "server" in item.path.parts else ""
        return report

    def pytest_runtest_logreport(self, report):
        """A Python counts when a test with the real server has passed on it."""
        if report.when == "call" and report.passed and report.python:
            self._pythons.add(report.python)

    def pytest_terminal_summary(self, terminalreporter):
        pythons = sorted(self._pythons, key=lambda minor: int(minor.partition(".")[2]))
        terminalreporter.write_line(f"Pythons exercised under the real server: {', '.join(pythons) or 'none'}")
        if len(pythons) < self._minimum:
            terminalreporter.write_line(f"error: at least {self._minimum} are demanded", red=True)

    def pytest_sessionfinish(self, session):
        if len(self._pythons) < self._minimum and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_configure(config):
    # Under pytest-xdist the controller judges; a process of its own sees only a part of the tests.
    minimum = 0 if hasattr(config, "workerinput") else int(os.environ.get("ENVPACK_MINIMUM_PYTHONS", "0"))
    config.pluginmanager.register(ExercisedPythons(minimum))
