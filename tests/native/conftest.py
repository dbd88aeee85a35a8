"""The stub for the Python that runs the tests.

It is cached in the folder ENVPACK_TEST_CACHE, if that is set.
"""

import os
import sys
from pathlib import Path

import pytest

from envpack.stub import STUB_NAME, build_stub, target_from_interpreter
from envpack.support.errors import EnvpackError

MINOR = f"{sys.version_info.major}.{sys.version_info.minor}"


@pytest.fixture(scope="session")
def target():
    try:
        return target_from_interpreter(MINOR)
    except EnvpackError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def cache(tmp_path_factory):
    kept = os.environ.get("ENVPACK_TEST_CACHE")
    return Path(kept) if kept else tmp_path_factory.mktemp("native")


@pytest.fixture(scope="session")
def stub(cache, target):
    if "ENVPACK_TEST_STUBS" in os.environ:  # see ci/sanitized.py
        return Path(os.environ["ENVPACK_TEST_STUBS"]) / target.minor / STUB_NAME
    return build_stub(target, cache=cache / "stubs").path
