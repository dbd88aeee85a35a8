"""How the stub determines the release of the server, and when it exits because a wrong release would crash the server.

A stub that knows the release continues and opens its region, which does not exist here. A stub that does not know it
exits before. A command line of another release makes the stub report which release it has determined.
"""

import contextlib
import os
import platform
import shutil
import subprocess
import sys
import uuid

import pytest

from envpack.settings.releases import all_releases
from envpack.stub.toolchain import find_toolchain
from envpack.support.placed_files import STUB_NAME
from envpack.support.processes import clean_environment

EXPLICIT = "ENVPACK_TRITON_RELEASE"
CONTINUES = "cannot open shared memory region"


class Launched:
    """A stub in a separate folder, and a server's folder."""

    def __init__(self, stub, folder):
        self.server = folder / "server"
        self.backend = self.server / "backends/python"
        self.backend.mkdir(parents=True)
        (folder / "model").mkdir()
        self.stub = shutil.copy(stub, folder / "model" / STUB_NAME)
        self.sidecar = folder / "model" / f"{STUB_NAME}.release"

    def error(self, *, region="", last=("DEFAULT",), warns=False, server=None, **variables):
        region = region or f"envpack_none_{uuid.uuid4()}"
        pid = str(server or os.getpid())
        arguments = ["/m/1/model.py", region, "1048576", "1048576", pid, self.backend, "336", "m_0", *last]
        done = subprocess.run(
            [self.stub, *arguments], env=variables, capture_output=True, text=True, check=False, timeout=20
        )
        assert done.returncode == 1
        assert done.stdout == ""
        assert done.stderr.startswith("envpack stub: ")
        assert done.stderr.count("\n") == 1 + warns
        return done.stderr

    def determined(self, **variables):
        """The source of the release that the stub has determined, and the release."""
        error = self.error(
            region="envpack_none_1" if self._is_late(**variables) else f"none_{uuid.uuid4()}", **variables
        )
        place, _, rest = error.removeprefix("envpack stub: ").partition(" names Triton ")
        assert "but the server that started this stub is of another release: its regions are named like" in rest
        return place, rest.partition(",")[0]

    def _is_late(self, **variables):
        return CONTINUES in self.error(**variables)


@pytest.fixture
def launched(stub, tmp_path):
    return Launched(stub, tmp_path)


def write(path, text):
    path.write_text(text)
    return path


def test_without_any_source_the_stub_exits(launched):
    error = launched.error()
    assert "the Triton release of the server is unknown" in error
    assert EXPLICIT in error
    assert str(launched.sidecar) in error


@pytest.mark.parametrize(
    ("name", "value", "taken"),
    [
        (EXPLICIT, "24.10", "24.10"),
        (EXPLICIT, "23.04", "23.04"),
        ("NVIDIA_TRITON_SERVER_VERSION", "25.07", "25.07"),
        ("NVIDIA_TRITON_SERVER_VERSION", "24.06-py3", "24.06-py3 (24.06)"),
        ("TRITON_SERVER_VERSION", "2.51.0", "2.51.0 (24.10)"),
        ("TRITON_SERVER_VERSION", "2.59.1", "2.59.1 (25.07)"),
        ("TRITON_SERVER_VERSION", "2.44.0dev", "2.44.0dev (24.03)"),
    ],
)
def test_a_variable_alone_is_enough(launched, name, value, taken):
    last = () if taken == "23.04" else ("DEFAULT",)
    assert launched.determined(last=last, **{name: value}) == (name, taken)


def test_the_file_beside_the_stub_alone_is_enough(launched):
    write(launched.sidecar, "24.08\n")
    assert launched.determined() == (str(launched.sidecar), "24.08")


def test_the_servers_file_alone_is_enough(launched):
    file = write(launched.server / "TRITON_VERSION", "2.45.0\n")
    place, taken = launched.determined()
    assert os.path.realpath(place) == os.path.realpath(file)
    assert taken == "2.45.0 (24.04)"


def test_the_first_source_is_named(launched):
    write(launched.sidecar, "24.11")
    write(launched.server / "TRITON_VERSION", "2.53.0")
    assert launched.determined(**{EXPLICIT: "25.01"}) == (EXPLICIT, "25.01")
    assert launched.determined() == (str(launched.sidecar), "24.11")


def test_releases_of_one_epoch_are_no_contradiction(launched):
    write(launched.sidecar, "24.10")
    assert CONTINUES in launched.error(TRITON_SERVER_VERSION="2.54.0")


@pytest.mark.parametrize("name", ["NVIDIA_TRITON_SERVER_VERSION", EXPLICIT])
def test_contradicting_sources_are_rejected(launched, name):
    write(launched.sidecar, "24.10")
    error = launched.error(**{name: "24.09"})
    assert f"{launched.sidecar} names Triton 24.10" in error
    assert f"{name} names Triton 24.09" in error
    assert "the wrong one would crash the server" in error


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        (EXPLICIT, "24", "'24', which is not a Triton release"),
        (EXPLICIT, "24.100", "which is not a Triton release"),
        (EXPLICIT, "2.51.0", "which is not a Triton release"),
        (EXPLICIT, "23.03", "supports 23.04 and later"),
        ("TRITON_SERVER_VERSION", "1.2", "which is not a version of a Triton server"),
        ("TRITON_SERVER_VERSION", "2.32.0", "supports 2.33.0 (23.04) and later"),
    ],
)
def test_an_invalid_source_is_rejected(launched, name, value, reason):
    error = launched.error(**{name: value})
    assert name in error
    assert reason in error


def test_an_empty_file_beside_the_stub_is_rejected(launched):
    write(launched.sidecar, "\n")
    assert "which is not a Triton release" in launched.error(**{EXPLICIT: "24.10"})


def test_a_server_newer_than_all_known_ones_uses_the_newest_epoch_or_the_chosen_one(launched):
    newest = list(all_releases())[-1]
    newer = {"NVIDIA_TRITON_SERVER_VERSION": "27.01", "TRITON_SERVER_VERSION": "2.77.0"}
    warning, last = launched.error(warns=True, **newer).splitlines()
    assert "NVIDIA_TRITON_SERVER_VERSION names 27.01, which is newer than this stub" in warning
    assert CONTINUES in last
    assert f"the last release that it knows is {newest}; using the protocol of {newest}" in warning
    write(launched.sidecar, "25.02")
    warning, last = launched.error(warns=True, **newer).splitlines()
    assert f"the last release that it knows is {newest}; using the protocol of 25.02" in warning
    assert CONTINUES in last


@pytest.mark.parametrize(
    ("release", "last", "region", "reason"),
    [
        ("23.06", ("NONE",), "region_1", "it passed 9 arguments"),
        ("23.07", (), "region_1", "it passed 8 arguments"),
        ("24.03", ("DEFAULT",), f"region_{uuid.UUID(int=1)}", "its regions are named like region_"),
        ("24.04", ("DEFAULT",), "region_12", "its regions are named like region_12"),
    ],
)
def test_a_command_line_of_another_release_is_rejected(launched, release, last, region, reason):
    error = launched.error(region=region, last=last, **{EXPLICIT: release})
    assert f"{EXPLICIT} names Triton {release}" in error
    assert reason in error


# A library like the server's: its constructor builds the version from constants within instructions, not far before the
# functions of the API. Elsewhere in the code are constants that only look like a version.
LIBRARY = """
asm(".text\\n"
    "movl $0x35332e32, (%rdi)\\n"  /* 2.35 */
    ".skip 4000000, 0x90\\n"
    ".globl constructor\\nconstructor: {version}\\nret\\n"
    ".skip 60000, 0x90\\n"
    ".globl TRITONSERVER_ApiVersion\\n.type TRITONSERVER_ApiVersion, @function\\nTRITONSERVER_ApiVersion: ret\\n");
"""
LOADED = "import ctypes, sys; ctypes.CDLL(sys.argv[1]); print(flush=True); sys.stdin.read()"


@contextlib.contextmanager
def server_with(folder, version):
    """Process id of a process that has loaded a library with this version."""
    library = folder / "libtritonserver.so"
    (folder / "library.c").write_text(LIBRARY.replace("{version}", version))
    command = [*find_toolchain().compiler, "-x", "c", "-shared", "-fPIC", "-o", library, folder / "library.c"]
    subprocess.run(command, check=True, env=clean_environment())
    with subprocess.Popen(
        [sys.executable, "-c", LOADED, library], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        process.stdout.readline()
        yield process.pid, library
        process.stdin.close()


on_x86 = pytest.mark.skipif(platform.machine() != "x86_64", reason="instructions of other machines contain no text")


@on_x86
def test_the_version_is_read_from_the_servers_code_beside_its_api(launched, tmp_path):
    with server_with(tmp_path, "movl $0x30352e32, (%rdi)") as (pid, library):  # 2.50
        assert launched.determined(server=pid) == (str(library), "2.50 (24.09)")


@on_x86
def test_a_version_far_from_the_api_is_found_too(launched, tmp_path):
    with server_with(tmp_path, "nop") as (pid, library):
        assert launched.determined(server=pid, last=()) == (str(library), "2.35 (23.06)")
