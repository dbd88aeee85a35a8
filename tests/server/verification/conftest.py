"""A small environment and a server for the tests; both are looked for, and a missing one skips them."""

import contextlib
import importlib.util
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from envpack.server.launch import find_server
from envpack.settings.releases import find_release
from envpack.settings.table import DEFAULT_RELEASE
from envpack.support.errors import ServerError
from tests.needed_pythons import need_interpreter

ACTIVATE = """_here=${BASH_SOURCE[0]%/bin/activate}
export PATH="$_here/bin:$PATH" CONDA_PREFIX="$_here" PYTHONNOUSERSITE=1
unset PYTHONHOME PYTHONPATH
"""


@pytest.fixture(scope="session")
def server():
    try:
        return find_server()
    except ServerError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def environment(server, tmp_path_factory):
    """An execution environment: an interpreter's files as links, NumPy and Pillow."""
    wanted = find_release(DEFAULT_RELEASE).python
    interpreter = _interpreter(wanted)
    folder = tmp_path_factory.mktemp("environment")
    standard = folder / f"lib/python{wanted}"
    (standard / "site-packages").mkdir(parents=True)
    (folder / "bin").mkdir()
    shutil.copy(interpreter.executable, folder / "bin/python3")
    shutil.copy(interpreter.library, folder / "lib" / interpreter.library.name)
    for entry in interpreter.stdlib.iterdir():
        if entry.name != "site-packages":
            (standard / entry.name).symlink_to(entry)
    (folder / "bin/activate").write_text(ACTIVATE)
    uv = Path(sys.executable).with_name("uv")
    if not uv.is_file():
        pytest.skip("uv is not installed beside this Python")
    command = [uv, "pip", "install", "--quiet", "--python", interpreter.executable]
    done = subprocess.run(
        [*command, "--target", standard / "site-packages", "numpy==1.26.4", "pillow==10.4.0"],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        pytest.skip(f"its packages could not be installed: {done.stderr[-300:]}")
    return folder


def _interpreter(minor):
    interpreter = need_interpreter(minor)
    if interpreter.library is None:
        pytest.skip(f"the Python {minor} on this machine has no shared library")
    return interpreter


@pytest.fixture(scope="session")
def faults():
    """The catalogue of broken models, tests/faults/broken_models.py."""
    file = Path(__file__).parents[2] / "faults/broken_models.py"
    spec = importlib.util.spec_from_file_location("broken_models", file)
    module = importlib.util.module_from_spec(spec)
    sys.modules["broken_models"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(autouse=True)
def nothing_left_behind(tmp_path_factory, monkeypatch):
    """No temporary folder, and no unused shared memory.

    Other servers of this machine do not count: the regions of those that are running are in use, or will be in a
    moment; those of a former run that was killed are there before.
    """
    before = _unused_regions()
    temporary = tmp_path_factory.mktemp("temporary")
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    yield
    assert list(temporary.glob("envpack-verify-*")) == []
    until = time.monotonic() + 60
    while (left := _unused_regions() - before) and time.monotonic() < until:
        time.sleep(0.1)
    assert left == set()


def _unused_regions():
    """Regions that no process has mapped; those of tests/native belong to no server."""
    regions = {str(path) for path in Path("/dev/shm").glob("envpack_*") if not path.name.startswith("envpack_native_")}
    for maps in Path("/proc").glob("[0-9]*/maps"):
        with contextlib.suppress(OSError):
            mapped = maps.read_text()
            regions = {region for region in regions if region not in mapped}
    return regions


@pytest.fixture
def temporary(monkeypatch, tmp_path):
    """A folder for temporary files that no other run on this machine uses."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    return folder
