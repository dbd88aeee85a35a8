"""A model whose import uses up a resource: it starts cold, or its load fails with the cause, and nothing waits."""

import dataclasses
import os
import re
import shlex
from contextlib import ExitStack

import pytest

from envpack.settings.pythons import SUPPORTED
from tests.newer_pythons import PYTHONS
from tests.server.stub.test_warm_start import Site
from tests.waiting import soon

pytestmark = pytest.mark.spoils
OLDEST_AND_NEWEST = pytest.mark.parametrize("python", SUPPORTED[:1] + SUPPORTED[-1:])
# The server of newer ones runs with another root, in which nothing can be mounted.
MOUNTING = pytest.mark.parametrize("python", [SUPPORTED[0], [minor for minor in SUPPORTED if minor not in PYTHONS][-1]])

MEMORY = """
import resource
pages = int(open("/proc/self/statm").read().split()[0])
resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + ({} << 20), resource.RLIM_INFINITY))
"""
# The kernel sets no limit on the processes of a user 0, nor on one with certain privileges.
THREADS = """
import ctypes, resource
class Header(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint32), ("pid", ctypes.c_int)]
if os.geteuid() == 0:
    os.setreuid(65534, 0)
    libc, header, sets = ctypes.CDLL(None), Header(0x20080522, 0), (ctypes.c_uint32 * 6)()
    assert libc.capget(ctypes.byref(header), sets) == 0
    for kind in (0, 1):
        sets[kind] &= ~(1 << 21 | 1 << 24)  # CAP_SYS_ADMIN, CAP_SYS_RESOURCE
    assert libc.capset(ctypes.byref(header), sets) == 0
resource.setrlimit(resource.RLIMIT_NPROC, (0, resource.getrlimit(resource.RLIMIT_NPROC)[1]))
"""
DESCRIPTORS = """
import resource
taken = [os.open("/dev/null", os.O_RDONLY)]
resource.setrlimit(resource.RLIMIT_NOFILE, (taken[0] + 20, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
try:
    while True:
        taken.append(os.dup(taken[0]))
except OSError:
    pass
"""
LIMIT = "import resource\nresource.setrlimit(resource.{0}, ({1}, resource.getrlimit(resource.{0})[1]))\n"

# By name: the code, and what the log says of the warm start; nothing if it is one.
USED_UP = {
    "memory": (MEMORY.format(9), "no room for 32 MiB of memory: Cannot allocate memory"),
    "threads": (THREADS, "no room for a thread: Resource temporarily unavailable"),
    "descriptors": (DESCRIPTORS, "no room for a descriptor: Too many open files"),
    "descriptors below the limit": (LIMIT.format("RLIMIT_NOFILE", 3), "no room for a descriptor: Too many open files"),
    "files": (LIMIT.format("RLIMIT_FSIZE", 0), ""),
}
FILL = """
with open({!r}, "wb", 0) as file:
    try:
        for _ in range(1024):  # bounded, in case that this is not the small file system
            file.write(bytes(1 << 16))
    except OSError:
        assert file.write(b"") == 0 and file.tell() < 1 << 26
"""


@pytest.fixture
def site(servers, interpreter, python, tmp_path):
    servers.close()
    with ExitStack() as stack:
        yield Site(servers, python, tmp_path, stack)


def left(served):
    return served.server.children(), served.server.orphans()


@OLDEST_AND_NEWEST
def test_a_model_that_leaves_no_room_for_a_fork_starts_cold_and_the_log_has_the_reason(site):
    names = {what: what.replace(" ", "_") for what in USED_UP}
    for what, (code, _) in USED_UP.items():
        site.place(f"{names[what]}_cold", code=code, start="cold")
        site.place(f"{names[what]}_warm", code=code)
    models = [f"{name}_{start}" for name in names.values() for start in ("cold", "warm")]
    served = site.load(*models)
    assert served.failures == {}
    assert {model: served.evaluate("1 + 1", model=model) for model in models} == dict.fromkeys(models, 2)
    assert soon(lambda: len(site.starts()) == len(models))
    assert site.starts() == {
        f"{names[what]}_{start}_0_0": "warm" if start == "warm" and not reason else "cold"
        for what, (_, reason) in USED_UP.items()
        for start in ("cold", "warm")
    }
    for what, (_, reason) in USED_UP.items():
        line = f"envpack stub: '{names[what]}_warm' starts cold: the model has left {reason}"
        assert not reason or line in served.server.log()
    for model in models:
        served.client.unload(model)
    assert soon(lambda: left(served) == ((), ())), left(served)


@pytest.mark.thorough
@OLDEST_AND_NEWEST
@pytest.mark.parametrize("start", ["cold", "warm"])
def test_the_load_of_a_model_that_leaves_no_memory_at_all_ends(site, start):
    site.place("m", code=MEMORY.format(0), start=start)
    served = site.load("m")
    assert re.search("^$|The model's process |MemoryError|Failed to preinitialize", served.failures.get("m", ""))
    served.client.unload("m")
    assert soon(lambda: left(served) == ((), ())), left(served)


@pytest.fixture
def small(site, monkeypatch, tmp_path):
    """The site with a server of its own /dev/shm and /tmp/small, of 3 MiB each."""
    if os.geteuid() != 0:
        pytest.skip("only root may mount")
    installation = site._servers.installation
    launcher = tmp_path / "tritonserver"
    mounts = 'mount -t tmpfs -o size=3m tmpfs /dev/shm && mount -t tmpfs -o size=3m tmpfs "$0"'
    command = shlex.join(["unshare", "--mount", "bash", "-c", f'{mounts} && exec {installation.executable} "$@"'])
    folder = tmp_path / "small"
    folder.mkdir()
    launcher.write_text(f'#!/bin/bash\nexec {command} {folder} "$@"\n')
    launcher.chmod(0o755)
    monkeypatch.setattr(site._servers, "installation", dataclasses.replace(installation, executable=launcher))
    return site, folder


# Larger than the rest of the region, so that the error is cut off within the x.
LONG = "raise ValueError('not today' + 'x' * (3 << 20))\n"
ALL = "def fill():\n" + "".join(f"    {line}\n" for line in FILL.format("/dev/shm/filled").splitlines())
# By name: the code, and the error of the load; nothing if there is none.
FULL = {
    "shared_memory": (FILL.format("/dev/shm/filled"), ""),
    "a_long_reason": (FILL.format("/dev/shm/filled") + LONG, "ValueError: not todayxxx"),
    "a_long_configuration": (
        FILL.format("/dev/shm/filled")
        + "@staticmethod\ndef complete(config):\n    config._model_config['parameters'] = {'x': 'x' * (3 << 20)}\n"
        + "    return config\nTritonPythonModel.auto_complete_config = complete\n",
        "No space left on device. Give the container more shared memory with --shm-size.",
    ),
}


@pytest.mark.thorough
@MOUNTING
@pytest.mark.parametrize("start", ["cold", "warm"])
@pytest.mark.parametrize("what", [*FULL, "temporary_files"])
def test_a_load_ends_although_the_import_has_filled_a_file_system(small, what, start):
    site, folder = small
    code, reason = FULL.get(what, (FILL.format(f"{folder}/filled"), ""))
    site.place("m", code=code, start=start)
    served = site.load("m")
    assert reason in served.failures.get("m", "")
    assert "TIMED OUT" not in served.failures.get("m", "")
    if not reason:
        assert served.evaluate("1 + 1", model="m") == 2
        served.client.unload("m")
    assert soon(lambda: served.server.children() == ())
