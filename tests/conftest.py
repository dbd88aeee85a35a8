"""What all rings share: one cache folder for the whole run, and the count of Pythons that were exercised."""

import os
import shutil
import tempfile

import pytest
from hypothesis import HealthCheck, settings

from tests.skips import judge_skips

# A busy machine is no fault of the code: no example fails because it, or the making of it, took long. All else is as
# Hypothesis has it, which is another profile when CI is set.
settings.register_profile("envpack", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("envpack")

_PYTHONS = pytest.StashKey[set]()
_OWN_CACHE = pytest.StashKey[str]()


def pytest_addoption(parser):
    group = parser.getgroup("Triton releases", "which pairs tests/server/releases runs; a spread by default")
    group.addoption("--release", action="append", default=[], metavar="24.10", help="a release, or all; repeatable")
    group.addoption("--python", action="append", default=[], metavar="3.10", help="a Python, or all; repeatable")
    group.addoption("--stub", metavar="FILE", help="a stub to test instead of ours; own: the one of the release")


def pytest_configure(config):
    """Interpreter packages, environments and stubs are made once for all tests, never in the user's own cache.

    ENVPACK_TEST_CACHE names a folder to keep between runs.
    """
    judge_skips(config)
    config.stash[_PYTHONS] = set()
    kept = os.environ.get("ENVPACK_TEST_CACHE")
    if not kept:
        kept = config.stash[_OWN_CACHE] = tempfile.mkdtemp(prefix="envpack-test-cache-")
    os.environ["ENVPACK_CACHE_DIR"] = os.environ["ENVPACK_TEST_CACHE"] = kept


def pytest_unconfigure(config):
    shutil.rmtree(config.stash.get(_OWN_CACHE, ""), ignore_errors=True)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item):
    """A Python counts as exercised when a test with the real server has passed on it."""
    report = yield
    if report.when == "call" and report.passed and "server" in item.path.parts and hasattr(item, "callspec"):
        python = item.callspec.params.get("python")
        if isinstance(python, str):
            item.config.stash[_PYTHONS].add(python)
    return report


def pytest_terminal_summary(terminalreporter, config):
    pythons = sorted(config.stash[_PYTHONS], key=lambda minor: int(minor.partition(".")[2]))
    terminalreporter.write_line(f"Pythons exercised under the real server: {', '.join(pythons) or 'none'}")
    if len(pythons) < _minimum():
        terminalreporter.write_line(f"error: at least {_minimum()} are demanded", red=True)


def pytest_sessionfinish(session):
    if len(session.config.stash[_PYTHONS]) < _minimum() and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _minimum():
    return int(os.environ.get("ENVPACK_MINIMUM_PYTHONS", "0"))
