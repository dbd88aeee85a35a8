"""Files in the store belong to the store alone: no other cache shares them."""

import ctypes
import os

import pytest

from envpack.environment import build_environment
from envpack.requirements import Requirements
from tests.wheels import make_wheel, write_index

from .sources import PYTHON

pytestmark = pytest.mark.usefixtures("own_index")

SITE = f"lib/python{PYTHON}/site-packages"
# Of Linux capabilities; programs that root starts get none with "no root".
_DAC_OVERRIDE, _VERSION_3 = 1, 0x20080522
_PR_GET_SECUREBITS, _PR_SET_SECUREBITS, _SECBIT_NOROOT = 27, 28, 1


@pytest.fixture
def build(served, tmp_path, monkeypatch):
    monkeypatch.setenv("ENVPACK_CACHE_DIR", str(tmp_path / "cache"))

    def run(*wheels, conda=()):
        requirements = Requirements(conda=conda, pip=wheels)
        return build_environment(
            requirements, python=PYTHON, channels=(served.url("/conda"),), cache=tmp_path / "cache"
        )

    return run


@pytest.fixture
def strict_permissions():
    """Permissions hold for this process and its children, also if they are root's."""
    libc = ctypes.CDLL(None, use_errno=True)
    header = (ctypes.c_uint32 * 2)(_VERSION_3, 0)
    before, without = (ctypes.c_uint32 * 6)(), (ctypes.c_uint32 * 6)()
    assert libc.capget(header, before) == 0
    without[:] = before[:]
    without[0] &= ~(1 << _DAC_OVERRIDE)
    bits = libc.prctl(_PR_GET_SECUREBITS, 0, 0, 0, 0)
    if os.geteuid() == 0:
        assert libc.prctl(_PR_SET_SECUREBITS, bits | _SECBIT_NOROOT, 0, 0, 0) == 0
    assert libc.capset(header, without) == 0
    yield
    assert libc.capset(header, before) == 0
    libc.prctl(_PR_SET_SECUREBITS, bits, 0, 0, 0)


def files(folder):
    return [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]


def test_the_store_shares_no_file_with_the_cache_of_uv(build, tmp_path, monkeypatch):
    monkeypatch.setenv("UV_LINK_MODE", "hardlink")
    prefix = build("tree", "leaf").prefix
    cached = {file: file.read_bytes() for file in files(tmp_path / "uv")}
    inodes = {(file.stat().st_dev, file.stat().st_ino) for file in cached}
    assert any(file.name == "leaf.py" for file in cached)
    assert [file for file in files(prefix) if (file.stat().st_dev, file.stat().st_ino) in inodes] == []
    for file in files(prefix / SITE):
        file.chmod(0o644)
        with file.open("a") as content:
            content.write("# changed in place")
    assert {file: file.read_bytes() for file in cached} == cached


def test_a_wheel_that_covers_files_of_a_conda_package_leaves_that_package_in_the_cache_alone(
    build, served, tmp_path, strict_permissions
):
    """The conda package has no record that uv could uninstall it by, so uv writes over its files."""
    make_wheel(served.folder / "pypi/files", "covers", "1.0", {"under_scored.py": "VALUE = 'covered'\n"})
    write_index(served.folder / "pypi", yanked=("leaf-1.2-py3-none-any.whl",))
    plain = build(conda=("under_scored",)).prefix / SITE / "under_scored.py"
    covered = build("covers", conda=("under_scored",)).prefix / SITE / "under_scored.py"
    assert covered.read_text() == "VALUE = 'covered'\n"
    assert plain.read_text() == "VALUE = '1.1'\n"
    kept = [file for file in files(tmp_path / "cache/conda-packages") if file.name == "under_scored.py"]
    assert [file.read_text() for file in kept] == ["VALUE = '1.1'\n"]
