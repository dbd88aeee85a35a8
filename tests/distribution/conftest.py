"""What is published, built once for all tests of this folder, with compiled stubs for one Python."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from envpack.conda.interpreters import available_interpreters
from envpack.support.processes import clean_environment

CHECKOUT = Path(__file__).parents[2]


def run(*command, **options):
    """Run to the end; what a command that fails prints is in the failure."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


@pytest.fixture(scope="session")
def python():
    """The newest Python of this machine that a stub can embed."""
    minors = [found.minor for found in available_interpreters() if found.library is not None]
    return minors[-1] if minors else pytest.skip("no interpreter with a shared libpython on this machine")


@pytest.fixture(scope="session")
def dist(python, tmp_path_factory):
    """The folder that `make dist` fills, for this machine and one Python."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, CHECKOUT / "ci/make_dist.py", folder, "--machine", os.uname().machine, "--python", python)
    return folder


@pytest.fixture(scope="session")
def variables():
    """An environment in which only the commands under test know of envpack, and no compiler is on PATH."""
    cache = {"ENVPACK_CACHE_DIR": os.environ["ENVPACK_TEST_CACHE"]}
    return clean_environment() | cache


@pytest.fixture(scope="session")
def installed(dist, tmp_path_factory):
    """The commands of a fresh virtual environment, in which pip installed the wheels."""
    folder = tmp_path_factory.mktemp("installed") / "venv"
    run(sys.executable, "-m", "venv", folder)
    pip = [folder / "bin/python", "-m", "pip", "--disable-pip-version-check"]
    run(*pip, "uninstall", "--quiet", "--yes", "setuptools")  # `venv` of Python 3.11 and older installs it beside pip
    run(*pip, "install", "--quiet", "--find-links", dist, "triton-envpack")
    return folder / "bin"
