"""Real environments from real interpreters, with packages from PyPI; built once for all tests of a session."""

import contextlib
import hashlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest

import envpack
from envpack.conda.channels import local_channel
from envpack.conda.interpreters import available_interpreters
from envpack.requirements.model import Requirements
from tests.built import build_environment
from tests.cache import kept_cache
from tests.clusters import cluster
from tests.needed_pythons import need, need_interpreter
from tests.web import serve
from tests.wheels import make_wheel

from .fleets import Caller
from .python_downloads import NAME, Downloads, make_archive
from .sources import PYTHON, fill_channel, fill_index, small_python

CODE = Path(envpack.__file__).parent
# What is kept between runs, because it takes long to make; the rest of a cache is made by the run itself.
_KEPT = ("channel", "bytecode")


@pytest.fixture(scope="session")
def cache(tmp_path_factory):
    """Without environments, so that what is tested is also built; interpreters as packages stay if their code does."""
    folder = tmp_path_factory.mktemp("cache")
    digest = hashlib.sha256()
    for file in sorted(file for part in ("conda", "pythons", "support") for file in (CODE / part).glob("*.py")):
        digest.update(file.read_bytes())
    for name in _KEPT:
        kept = kept_cache() / "made" / digest.hexdigest()[:16] / name
        kept.mkdir(parents=True, exist_ok=True)
        (folder / name).symlink_to(kept)
    return folder


@pytest.fixture
def packaged(cache):
    """Give another cache the package of an interpreter, where making it is not what is tested."""

    def give(minor, other):
        made = local_channel(need_interpreter(minor), cache=cache).channel
        shutil.copytree(made, other / "channel" / made.name, copy_function=os.link)
        return other

    return give


@pytest.fixture(scope="module", autouse=True)
def _in_own_cache(cache):
    with pytest.MonkeyPatch.context() as patch:  # the tests of other folders keep the cache of the whole run
        patch.setenv("ENVPACK_CACHE_DIR", str(cache))
        yield


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


@pytest.fixture(scope="session")
def small_channel(tmp_path_factory):
    """A channel with a small Python."""
    need(PYTHON)
    return small_python(tmp_path_factory.mktemp("small"))


@pytest.fixture(scope="module")
def served(tmp_path_factory, small_channel):
    """A folder with the channel ``conda`` and the index ``pypi``, on the web."""
    root = tmp_path_factory.mktemp("served")
    fill_channel(root / "conda", small_channel)
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
    served.gate.set()
    served.requested.clear()


@pytest.fixture
def caller(tmp_path, served):
    return Caller(tmp_path, served.url("/conda"))


@pytest.fixture
def folder_store(tmp_path):
    (tmp_path / "store").mkdir()
    return ("--store", f"file://{tmp_path}/store")


@pytest.fixture
def two_workers(tmp_path):
    """A cluster of two workers with one cache."""
    with cluster(tmp_path, "east", "west", ENVPACK_CACHE_DIR=str(tmp_path / "workers")) as found:
        yield found


@pytest.fixture(scope="session")
def archive(tmp_path_factory):
    found = need_interpreter(PYTHON)
    return make_archive(found, tmp_path_factory.mktemp("archive")), found


@pytest.fixture
def bare(monkeypatch, tmp_path, archive):
    """A machine without the Python, as far as envpack looks; returns its cache."""
    for name in list(os.environ):
        if name.startswith(("UV_", "PIP_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv"))
    for name in ("HOME", "XDG_DATA_HOME", "UV_PYTHON_INSTALL_DIR"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setenv("ENVPACK_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    if any(found.minor == PYTHON for found in available_interpreters()):
        pytest.skip(f"Python {PYTHON} belongs to this system")
    return tmp_path / "cache"


@pytest.fixture
def downloads(bare, archive, tmp_path, monkeypatch):
    (tmp_path / "web").mkdir()
    os.link(archive[0], tmp_path / "web" / NAME)
    with serve(tmp_path / "web") as site:
        made = Downloads(site, *archive)
        monkeypatch.setenv("UV_PYTHON_DOWNLOADS_JSON_URL", made.offer())
        yield made


@pytest.fixture(scope="module")
def wheels(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheels")
    tree = {"tree.py": "import sys, leaf\ndef grow():\n    print(leaf.VALUE, sys.prefix)\n"}
    make_wheel(folder, "leaf", "1.0", {"leaf.py": "VALUE = 1\n"})
    make_wheel(folder, "tree", "1.0", tree, needs=("leaf",), scripts=("grow = tree:grow",))
    return folder
