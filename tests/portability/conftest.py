"""What is built once and kept in the cache of the tests: root file systems of Debian, environments, stubs."""

import importlib.util
import os
from pathlib import Path

import pytest

from envpack.stub import target_from_prefix
from tests.portability import arm64
from tests.portability.environments import environment_from
from tests.portability.machinery import debian_root, program


@pytest.fixture(scope="session")
def cache():
    return Path(os.environ["ENVPACK_TEST_CACHE"])


@pytest.fixture(scope="session", autouse=True)
def _zig():
    if importlib.util.find_spec("ziglang") is None:
        pytest.skip("the ziglang wheel is not installed")


@pytest.fixture(scope="session")
def arm64_root(cache):
    """Python and its headers for arm64, out of Debian's packages."""
    folder = cache / f"debian/{arm64.SUITE}-arm64"
    return debian_root(folder, arm64.SUITE, *arm64.PACKAGES, machine="arm64", variant="extract")


@pytest.fixture(scope="session")
def arm64_target(arm64_root):
    return target_from_prefix(arm64_root)


@pytest.fixture(scope="session")
def arm64_machine(arm64_root):
    return arm64.Arm64(program("qemu-aarch64", "qemu-user"), arm64_root)


@pytest.fixture(scope="session")
def arm64_environment(cache, arm64_root):
    return environment_from(arm64_root, arm64.PYTHON, "aarch64", cache / f"environments/aarch64-{arm64.PYTHON}")
