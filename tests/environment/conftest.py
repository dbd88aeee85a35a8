"""Real environments from real interpreters, with packages from PyPI; built once for all tests of a session."""

import contextlib
import os
import subprocess

import pytest

from envpack.environment import build_environment
from envpack.pythons import available_interpreters
from envpack.requirements import Requirements
from tests.web import serve

from .sources import PYTHON, fill_channel, fill_index


@pytest.fixture(scope="session")
def cache(tmp_path_factory):
    """Empty at first, so that what is tested is also built."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module", autouse=True)
def _in_own_cache(cache):
    with pytest.MonkeyPatch.context() as patch:  # the tests of other folders keep the cache of the whole run
        patch.setenv("ENVPACK_CACHE_DIR", str(cache))
        yield


def need(minor: str) -> str:
    if not any(found.minor == minor and found.library for found in available_interpreters()):
        pytest.skip(f"no Python {minor} with a shared library on this machine")
    return minor


@pytest.fixture(scope="session")
def numpy_env(cache):
    return build_environment(Requirements(pip=("numpy", "six")), python=need("3.8"), cache=cache)


@pytest.fixture
def small_disk(tmp_path):
    with mounted(tmp_path / "small", megabytes=14) as folder:
        yield folder


@pytest.fixture
def other_disk(tmp_path):
    with mounted(tmp_path / "other", megabytes=400) as folder:
        yield folder


@contextlib.contextmanager
def mounted(folder, megabytes):
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, check=False, capture_output=True).returncode != 0:
        pytest.skip("another file system can be mounted by root only")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A folder with the channel ``conda`` and the index ``pypi``, on the web."""
    root = tmp_path_factory.mktemp("served")
    need(PYTHON)
    fill_channel(root / "conda")
    fill_index(root / "pypi")
    with serve(root) as site:
        yield site


@pytest.fixture
def own_index(served, monkeypatch, tmp_path):
    """Nothing but the test's own index, a fresh uv cache, and a site as it should be."""
    for name in list(os.environ):
        if name.startswith(("UV_", "PIP_", "CONDA")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("UV_DEFAULT_INDEX", served.url("/pypi/simple"))
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    served.account, served.truncated, served.pause = "", {}, 0.0
    served.requested.clear()
