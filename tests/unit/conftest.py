"""What holds in every unit test."""

import ctypes
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from envpack.repository import code
from envpack.support.errors import EnvpackError

_CAP_DAC_OVERRIDE, _CAP_DAC_READ_SEARCH, _LINUX_CAPABILITY_VERSION_3 = 1, 2, 0x20080522


@pytest.fixture(autouse=True)
def every_error_says_what_to_do(monkeypatch):
    """Fail a test in which envpack makes an error without a hint, whatever the test is about."""
    make, without = EnvpackError.__init__, []

    def noted(error, *said, **parts):
        caller = sys._getframe(1).f_globals["__name__"]
        if caller.startswith("envpack.") and "hint" not in parts and len(said) < 3:
            without.append(f"{caller}: {said}")
        make(error, *said, **parts)

    monkeypatch.setattr(EnvpackError, "__init__", noted)
    yield
    assert without == []


@pytest.fixture
def own_files(monkeypatch):
    """Lets the files of this checkout count as those of this machine alone, also where it lies below /tmp."""
    checkout = re.escape(str(Path(__file__).parents[2]))
    for name in ("_OF_EVERY_SERVER", "_WRITTEN"):
        monkeypatch.setattr(code, name, re.compile(rf"(?!{checkout}){getattr(code, name).pattern}"))


@pytest.fixture
def mount():
    """Mounts a tmpfs with options, and takes it away again."""
    mounted = []

    def run(folder, options):
        folder.mkdir(exist_ok=True)
        command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
        if os.geteuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode != 0:
            pytest.skip("a tmpfs can be mounted by root only")
        mounted.append(folder)

    yield run
    for folder in mounted:
        subprocess.run(["umount", str(folder)], check=True)


@pytest.fixture
def other_file_system(tmp_path):
    """A folder on another file system than the temporary folder."""
    if not os.access("/dev/shm", os.W_OK) or Path("/dev/shm").stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("/dev/shm is missing or no file system of its own")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        yield Path(folder)


@pytest.fixture
def permissions_for_root():
    """The permissions of files hold for root as for every other user: this thread may not pass them over."""
    libc = ctypes.CDLL(None, use_errno=True)
    header = (ctypes.c_uint32 * 2)(_LINUX_CAPABILITY_VERSION_3, 0)
    before, without = (ctypes.c_uint32 * 6)(), (ctypes.c_uint32 * 6)()  # two of effective, permitted, inheritable
    assert libc.capget(header, before) == 0
    without[:] = before[:]
    without[0] &= ~(1 << _CAP_DAC_OVERRIDE | 1 << _CAP_DAC_READ_SEARCH)
    assert libc.capset(header, without) == 0
    yield
    assert libc.capset(header, before) == 0
