"""Root file systems of Debian, environments and stubs, made once and kept in the cache of the tests."""

import importlib.util

import pytest

from envpack.requirements.model import Requirements
from envpack.stub.target import target_from_prefix
from tests.built import build_environment
from tests.cache import kept_cache
from tests.portability import arm64
from tests.portability.environments import NUMPY, channel_from, need_same
from tests.portability.machinery import debian_root, program


@pytest.fixture(scope="session")
def cache():
    return kept_cache()


@pytest.fixture(scope="session", autouse=True)
def _zig():
    if importlib.util.find_spec("ziglang") is None:
        pytest.skip("the ziglang wheel is not installed")


@pytest.fixture(scope="session")
def arm64_root(cache):
    """Python and its headers for arm64, from Debian's packages."""
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
    """Built by envpack on this machine for arm64, with Debian's Python for arm64 as a conda package."""
    channel = channel_from(arm64_root, arm64.PYTHON, "aarch64", cache / f"channels/aarch64-{arm64.PYTHON}")
    return build_environment(
        Requirements(pip=(f"numpy=={NUMPY}",)),
        python=need_same(arm64.PYTHON),
        platform="linux-aarch64",
        channels=(str(channel),),
        cache=cache / "environments-for-others",
        glibc="2.36",
    ).prefix
