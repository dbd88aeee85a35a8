"""Real environments from real interpreters, with packages from PyPI; built once for all tests of a session."""

import os

import pytest

from envpack.environment import available_interpreters, build_environment
from envpack.requirements import Requirements


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cache")
    before = os.environ.get("ENVPACK_CACHE_DIR")
    os.environ["ENVPACK_CACHE_DIR"] = str(folder)
    yield folder
    if before is None:
        del os.environ["ENVPACK_CACHE_DIR"]
    else:
        os.environ["ENVPACK_CACHE_DIR"] = before


def need(minor: str) -> str:
    if not any(found.minor == minor and found.library for found in available_interpreters()):
        pytest.skip(f"no Python {minor} with a shared library on this machine")
    return minor


@pytest.fixture(scope="session")
def numpy_env(cache):
    return build_environment(Requirements(pip=("numpy", "six")), python=need("3.8"))
