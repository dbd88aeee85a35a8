"""A stub for aarch64, compiled here by zig: inspected, and run by qemu-user alone and with the tests' peer."""

import importlib.util
import itertools
import os
import subprocess
import sys
from pathlib import Path

import pytest

from envpack.settings.releases import all_releases
from envpack.stub.build import build_stub
from envpack.stub.recipe import Cell, source_folder
from envpack.stub.toolchain import boost_folder, find_toolchain
from envpack.support.elf import version_key
from envpack.support.folders import cache_root
from envpack.support.processes import clean_environment
from tests.compiled import native_programs, write_headers
from tests.portability import arm64
from tests.portability.conversation import NATIVE, cases, variables_for_peer
from tests.portability.environments import need_same

REGIONS = (f"envpack_aarch64_{os.getpid()}_{number}_" for number in itertools.count())  # a name for each test
RELEASE = cases("release_test.cc")
# The first two request that the kernel hands them orphaned processes, a request that qemu-user 7.2 does not forward. In
# the third, children of a process with threads crash on purpose; it hung in 2 of 9 runs for an unknown reason.
NOT_IN_QEMU = {
    "stub_beats_while_its_child_completes_and_kills_it_when_killed",
    "stub_ends_and_removes_the_region_when_the_server_dies",
    "stub_reports_how_a_model_ended_its_process_while_it_completed",
}
# qemu-user hangs once in many runs where a process with threads forks, as for the configuration. Such a run is repeated
# once; a stub that does not answer is silent again.
SILENCE = "no message within"
FILES = ("damage_test.cc", "execute_test.cc", "gpu_test.cc", "guard_test.cc", "lifecycle_test.cc", "senders_test.cc")


@pytest.fixture(scope="module")
def stub(arm64_target):
    return build_stub(Cell(arm64_target, toolchain="zig"))


@pytest.fixture(scope="module")
def peer(arm64_target):
    return native_programs(arm64_target, toolchain="zig", programs=["stub_tests"])


def test_it_is_for_aarch64_and_needs_little(stub):
    facts = stub.facts
    assert (facts.machine, facts.python) == ("aarch64", arm64.PYTHON)
    assert version_key(facts.glibc) <= (2, 28)
    libraries = ["libc.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "libm.so.6", "ld-linux-aarch64.so.1"]
    assert set(facts.needs) <= {f"libpython{arm64.PYTHON}.so.1.0", *libraries}
    assert set(facts.epochs) == {release.stub_abi for release in all_releases().values()}


def test_it_runs(stub, arm64_machine):
    completed = arm64_machine.run(stub.path, "--version")
    assert (completed.returncode, completed.stderr) == (0, "")
    assert f"for Python {arm64.PYTHON}" in completed.stdout


def test_it_passes_the_trial_run_of_the_server(stub, arm64_machine):
    completed = arm64_machine.run(stub.path)
    assert (completed.returncode, completed.stdout, completed.stderr) == (1, "", "")


def test_records_are_laid_out_as_on_x86_but_for_the_larger_mutex(tmp_path):
    """For all releases; test_aarch64_server.py confirms it with a real server."""
    write_headers(tmp_path, source_folder())
    layouts = source_folder() / "stub_src/abi/layouts.txt"
    for machine, agrees in (("aarch64", True), ("x86_64", False)):
        generate = [
            sys.executable,
            NATIVE / "abi/generate.py",
            layouts,
            "checks",
            *all_releases(),
            "--machine",
            machine,
        ]
        source = tmp_path / f"{machine}.cc"
        source.write_text(subprocess.run(generate, capture_output=True, text=True, check=True).stdout)
        boost = boost_folder() / "include"
        command = [*find_toolchain("zig", machine="aarch64").compiler, "-std=c++17", "-Wno-invalid-offsetof"]
        command += ["-I", tmp_path, "-I", source_folder() / "stub_src", "-isystem", boost]
        command += ["-c", source, "-o", source.with_suffix(".o")]
        caches = {"ZIG_LOCAL_CACHE_DIR": str(tmp_path), "ZIG_GLOBAL_CACHE_DIR": str(cache_root() / "zig")}
        variables = clean_environment() | caches
        done = subprocess.run(command, capture_output=True, text=True, env=variables, check=False)
        assert done.returncode == 0 or "static assertion failed" in done.stderr, done.stderr
        assert (done.returncode == 0) == agrees, done.stderr[:2000]


@pytest.fixture
def converse(stub, peer, arm64_machine, arm64_environment, tmp_path):
    """Run cases of tests/native with both ends in qemu-user."""
    script = arm64_machine.script(stub.path, tmp_path / "stub")

    def run_once(names, release):
        regions = next(REGIONS)
        folder = tmp_path / regions
        folder.mkdir()
        variables = variables_for_peer(script, arm64_environment, peer, folder)
        variables |= {"ENVPACK_TEST_REGIONS": regions} | ({"ENVPACK_TEST_RELEASE": release} if release else {})
        done = arm64_machine.run(peer / "stub_tests", *names, variables=variables, timeout=400)
        assert list(Path("/dev/shm").glob(f"{regions}*")) == []
        return done

    def run(*names, release=""):
        done = run_once(names, release)
        if SILENCE in done.stderr:
            done = run_once(names, release)
        assert done.returncode == 0, done.stdout + done.stderr

    return run


@pytest.mark.parametrize("release", [next(iter(all_releases())), "24.10", list(all_releases())[-1]])
def test_conversation(converse, release):
    """A case of each kind, for the oldest, the default and the newest release."""
    converse(*RELEASE, release=release.replace(".", ""))


@pytest.mark.parametrize("file", FILES)
def test_cases_of_the_stub(converse, file):
    converse(*(name for name in cases(file) if name not in NOT_IN_QEMU))


@pytest.fixture(scope="module")
def cross_prefix():
    """The script that builds the wheel of prebuilt stubs; Debian does not have every Python for arm64."""
    file = Path(__file__).parents[2] / "ci/cross_prefix.py"
    spec = importlib.util.spec_from_file_location("cross_prefix", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_target_derived_from_this_machines_python_gives_the_same_stub(arm64_target, cross_prefix, tmp_path):
    need_same(arm64.PYTHON)
    derived = cross_prefix.cross_target(arm64.PYTHON, "aarch64", tmp_path)
    assert derived.machine == "aarch64"
    stubs = [build_stub(Cell(target, toolchain="zig")) for target in (arm64_target, derived)]
    assert stubs[0].path != stubs[1].path
    assert stubs[0].path.read_bytes() == stubs[1].path.read_bytes()


def test_pyconfig_differs_as_in_debians_packages(arm64_target, cross_prefix):
    text = arm64_target.configuration.read_text()
    assert cross_prefix.for_machine(text, "aarch64") == text
    assert cross_prefix.for_machine(cross_prefix.for_machine(text, "x86_64"), "aarch64") == text
    assert cross_prefix.for_machine(text, "x86_64") != text
