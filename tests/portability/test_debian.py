"""One stub, compiled by zig, in root file systems of several Debian releases, beside one environment.

The environment is Debian 11's Python with its libraries, so that all of them can run it.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from envpack.inspection.facts import EnvironmentFacts
from envpack.settings.releases import find_release
from envpack.stub.build import build_stub
from envpack.stub.inspection import inspect_stub
from envpack.stub.recipe import Cell
from envpack.stub.target import target_from_prefix
from envpack.support.elf import version_key
from envpack.support.errors import StubError
from envpack.support.placed_files import STUB_NAME
from envpack.support.progress import NoProgress
from envpack.workflow.build import _fitting_stub
from tests.compiled import native_programs
from tests.portability.conversation import cases, variables_for_peer
from tests.portability.environments import environment_from
from tests.portability.machinery import debian_root, must_be_able_to_enter

GLIBCS = {"bullseye": "2.31", "bookworm": "2.36", "trixie": "2.41"}
PYTHON = "3.9"  # of bullseye
REGIONS = f"envpack_debian_{os.getpid()}_"
# File systems of the kernel that programs need: /proc, and /dev with its shared memory.
ENTER = 'for shown in proc dev; do mount --rbind /$shown "$1/$shown" || exit 125; done; cd "$1"; exec chroot "$@"'


class Debian:
    """A root file system in which programs run; files for them are mounted in its folder `given`."""

    def __init__(self, folder, shared):
        self.folder, self.shared = folder, shared
        (folder / "given").mkdir(exist_ok=True)

    def run(self, program, *arguments, variables=None):
        """Run to the end, with exactly these variables, and with mounts that end with it."""
        give = f'mount --bind {self.shared} "$1/given" && {ENTER}'
        assignments = [f"{name}={value}" for name, value in (variables or {}).items()]
        inside = ["/usr/bin/env", "-i", *assignments, program, *arguments]
        command = ["unshare", "--mount", "--fork", "sh", "-c", give, "sh", self.folder, *inside]
        return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


@pytest.fixture(scope="session")
def python_root(cache):
    packages = (f"libpython{PYTHON}-dev", f"python{PYTHON}", "libstdc++6")
    return debian_root(cache / "debian/bullseye-python", "bullseye", *packages, variant="extract")


@pytest.fixture(scope="session")
def shared(cache, python_root):
    """A folder with the files for every Debian: environment, peer, and temporary folders."""
    folder = cache / "debian/given"
    environment_from(python_root, PYTHON, "x86_64", folder / "environment")
    programs = native_programs(target_from_prefix(python_root), toolchain="zig", programs=["stub_tests"])
    shutil.copytree(programs / "cuda", folder / "peer/cuda", dirs_exist_ok=True)
    shutil.copy(programs / "stub_tests", folder / "peer")
    return folder


@pytest.fixture(params=["zig", "system"])
def toolchain(request):
    return request.param


@pytest.fixture
def stub(toolchain, python_root, shared):
    made = build_stub(Cell(target_from_prefix(python_root), toolchain=toolchain))
    place = shared / toolchain / STUB_NAME
    place.parent.mkdir(exist_ok=True)
    place.unlink(missing_ok=True)
    place.hardlink_to(made.path)
    return made


@pytest.fixture(params=GLIBCS)
def debian(request, cache, shared):
    must_be_able_to_enter()
    machine = Debian(debian_root(cache / f"debian/{request.param}", request.param), shared)
    output = machine.run("/usr/bin/ldd", "--version").stdout
    assert output.partition("\n")[0].rpartition(" ")[2] == GLIBCS[request.param], output
    return machine


def runs_in(facts, debian):
    return version_key(facts.glibc) <= version_key(GLIBCS[debian.folder.name])


def test_what_it_needs(stub, toolchain):
    assert toolchain != "zig" or version_key(stub.facts.glibc) <= (2, 28)
    assert not [name for name in stub.facts.needs if "stdc++" in name or "gcc" in name]


def fitting_stub(environment, image, toolchain):
    """The stub that a build places for an environment which is there already."""
    request = SimpleNamespace(release=image, toolchain=toolchain, source=None)
    return _fitting_stub(environment, request, NoProgress(), None)


def test_build_turns_to_zig_where_this_machines_compiler_makes_what_the_image_cannot_run(python_root):
    environment = EnvironmentFacts(python_root, PYTHON, "x86_64", GLIBCS["bullseye"], "", "")
    image = find_release("23.04")
    assert image.glibc == GLIBCS["bullseye"]
    made = inspect_stub(fitting_stub(environment, image, "auto"))
    assert version_key(made.glibc) <= version_key(image.glibc)
    system = build_stub(Cell(target_from_prefix(python_root), toolchain="system"))
    if version_key(system.facts.glibc) <= version_key(image.glibc):
        pytest.skip("this machine's compiler makes what the image can run")
    assert "clang" in made.compiler.lower()
    with pytest.raises(StubError) as caught:
        fitting_stub(environment, image, "system")
    assert caught.value.kind == "glibc-too-old"
    assert "--toolchain zig --glibc 2.31" in caught.value.hint


def test_it_starts_or_the_loader_says_which_glibc_it_lacks(debian, toolchain, stub):
    version = debian.run(f"/given/{toolchain}/{STUB_NAME}", "--version")
    trial = debian.run(f"/given/{toolchain}/{STUB_NAME}")
    if toolchain == "zig" or runs_in(stub.facts, debian):
        assert (version.returncode, version.stderr) == (0, "")
        assert f"for Python {PYTHON}" in version.stdout
        assert (trial.returncode, trial.stdout, trial.stderr) == (1, "", "")
    else:  # the status that a server expects in its trial run
        assert trial.returncode == version.returncode == 1
        assert re.search("version `GLIBC_2\\.\\d+' not found", trial.stderr)


def test_conversation(debian, toolchain, stub, shared):
    """The stub serves a model of the test's own peer, in that Debian and beside that environment."""
    if toolchain == "system" and not runs_in(stub.facts, debian):
        pytest.skip(f"what this machine's compiler makes needs glibc {stub.facts.glibc}")
    temporary = shared / f"temporary-{os.getpid()}-{debian.folder.name}-{toolchain}"
    temporary.mkdir()
    inside = Path("/given")
    variables = variables_for_peer(inside / toolchain / STUB_NAME, shared / "environment", shared / "peer", temporary)
    variables = {name: value.replace(str(shared), str(inside)) for name, value in variables.items()}
    names = cases("release_test.cc", "execute_test.cc", "senders_test.cc")
    variables |= {"ENVPACK_TEST_REGIONS": REGIONS, "LD_LIBRARY_PATH": variables["ENVPACK_TEST_CUDA"]}
    done = debian.run("/given/peer/stub_tests", *names, variables=variables)
    assert done.returncode == 0, done.stdout + done.stderr
    assert list(Path("/dev/shm").glob(f"{REGIONS}*")) == []
