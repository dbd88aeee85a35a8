"""What all rings share: one cache folder, and the options that choose Triton releases."""

import os
import signal

from hypothesis import HealthCheck, settings

from tests.cache import use_kept_cache
from tests.skips import judge_skips

# A busy machine is no fault of the code: no example fails because it, or the making of it, took long. All else is as
# Hypothesis has it, which is another profile when CI is set.
settings.register_profile("envpack", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("gate", settings.get_profile("envpack"), max_examples=25)
settings.register_profile("fuzz", settings.get_profile("envpack"), max_examples=3000, print_blob=True)
settings.load_profile("envpack")

pytest_plugins = ["tests.rings", "tests.ring_times", "tests.exercised"]


def pytest_addoption(parser):
    group = parser.getgroup("Triton releases", "which pairs tests/server/releases runs; a spread by default")
    group.addoption("--release", action="append", default=[], metavar="24.10", help="a release, or all; repeatable")
    group.addoption("--python", action="append", default=[], metavar="3.10", help="a Python, or all; repeatable")
    group.addoption("--stub", metavar="FILE", help="a stub to test instead of ours; own: the one of the release")
    group = parser.getgroup("envpack's stub", "how tests/server/stub and tests/server/releases run it")
    group.addoption("--start", choices=["cold", "warm"], help="how all models start that do not say it themselves")


def pytest_configure(config):
    # A shell that runs this in the background, or nohup, ignores a signal, which children inherit; tests send both.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    if config.getoption("--part") in ("gate", "quick") and not config.getoption("--hypothesis-profile"):
        settings.load_profile("gate")
    os.environ.pop("CUDA_VISIBLE_DEVICES", None)  # which servers get
    os.environ["UV_PYTHON_DOWNLOADS"] = "never"  # a test that lacks an interpreter says so, and fetches none
    use_kept_cache()
    judge_skips(config)
    config.addinivalue_line("markers", "since(python): the test needs what older Pythons, or their NumPy, do not have")
