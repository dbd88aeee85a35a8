"""Builds the C++ tests once and runs each of their cases as a separate test."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from envpack.conda.choice import interpreter_for
from envpack.settings.releases import all_releases
from envpack.stub.recipe import source_folder
from envpack.stub.toolchain import boost_folder, find_toolchain
from envpack.support.processes import clean_environment
from tests.cache import kept_cache
from tests.compiled import SANITIZED, native_programs, sanitized_programs, write_headers
from tests.server.model_environments import NUMPYS, ModelEnvironments

HERE = Path(__file__).parent
LAYOUTS = source_folder() / "stub_src/abi/layouts.txt"


# Distinguishes the regions of concurrent test runs.
REGIONS = f"envpack_native_{os.getpid()}_"

OPTIONS_OF_SANITIZERS = {name: value for name, value in os.environ.items() if name.endswith("SAN_OPTIONS")}


def cases(file):
    return re.findall(r"^CASE\((\w+)\)", (HERE / file).read_text(), re.MULTILINE)


WIRE_FILES = (
    "channel_test.cc", "codec_test.cc", "epoch_batch_test.cc", "epoch_calls_test.cc", "epoch_gpu_test.cc",
    "abandoned_test.cc", "epoch_session_test.cc", "heap_test.cc", "queue_test.cc", "region_test.cc", "settings_test.cc",
    "streams_test.cc", "sync_test.cc", "warm_test.cc",
)  # fmt: skip
STUB_FILES = (
    "damage_test.cc", "demangle_test.cc", "execute_test.cc", "full_region_test.cc", "gpu_test.cc", "guard_test.cc",
    "lifecycle_test.cc", "overwritten_test.cc", "senders_test.cc",
)  # fmt: skip
WIRE, STUB = ([case for file in files for case in cases(file)] for files in (WIRE_FILES, STUB_FILES))
RELEASE = [*cases("release_test.cc"), *cases("restart_test.cc")]


@pytest.fixture(scope="session")
def programs(target):
    return native_programs(target)


@pytest.fixture(scope="session", params=SANITIZED)
def sanitized(target, request):
    return sanitized_programs(request.param)


@pytest.fixture(autouse=True)
def no_region_is_left():
    yield
    assert list(Path("/dev/shm").glob(f"{REGIONS}*")) == []


def run(program, *arguments, **variables):
    done = start(program, *arguments, **variables)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def start(program, *arguments, **variables):
    return subprocess.run(
        [program, *arguments],
        env={**clean_environment(), **OPTIONS_OF_SANITIZERS, "ENVPACK_TEST_REGIONS": REGIONS, **variables},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_every_case_of_the_sources_is_in_the_programs(programs):
    assert run(programs / "wire_tests", "--list").split() == sorted(WIRE)
    assert run(programs / "stub_tests", "--list").split() == sorted(STUB + RELEASE)


@pytest.mark.parametrize("case", WIRE)
def test_wire(programs, case):
    run(programs / "wire_tests", case)


@pytest.mark.parametrize(
    "file", [pytest.param(file, marks=[pytest.mark.thorough] if file == "heap_test.cc" else []) for file in WIRE_FILES]
)
def test_wire_under_sanitizers(sanitized, file):
    """The cases of a file in one process, since a program with sanitizers starts slowly; apart if one fails."""
    # The other sanitizers halt by default. The front unlocks what a dead process has locked, on purpose.
    options = {"UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1", "TSAN_OPTIONS": "report_mutex_bugs=0"}
    together = start(sanitized / "wire_tests", *cases(file), **options)
    if together.returncode:
        ended = {case: start(sanitized / "wire_tests", case, **options) for case in cases(file)}
        failed = {case: done.stdout + done.stderr for case, done in ended.items() if done.returncode}
        assert failed, f"all cases pass apart, not together: {together.stdout}{together.stderr}"
        pytest.fail("\n".join(f"{case}:\n{output}" for case, output in failed.items()))


@pytest.mark.parametrize("name", [name for name, build in SANITIZED.items() if "fuzz_replay" in build.programs])
@pytest.mark.thorough
def test_messages_of_a_hostile_server_are_read_or_rejected(target, name):
    corpus = sorted((HERE.parent / "fuzz/corpus").iterdir())
    outcomes = run(
        sanitized_programs(name).parent / "fuzz/fuzz_replay",
        *corpus,
        UBSAN_OPTIONS="halt_on_error=1:print_stacktrace=1",
    )
    assert {line.partition(" ")[0] for line in outcomes.splitlines()} == {"read", "rejected"}


@pytest.mark.parametrize("name", [name for name, build in SANITIZED.items() if "fuzz_recovery" in build.programs])
@pytest.mark.thorough
def test_whatever_a_dying_model_has_overwritten_the_stub_goes_on_or_says_why_not(target, name):
    output = run(
        sanitized_programs(name).parent / "fuzz/fuzz_recovery",
        "20",
        "1",
        UBSAN_OPTIONS="halt_on_error=1:print_stacktrace=1",
    )
    assert re.search(r"\n[1-9]\d* recovered", f"\n{output}")


@pytest.fixture(scope="session")
def numpy(target):
    """The folder that holds NumPy for the target's Python."""
    environments = ModelEnvironments(kept_cache())
    return environments.environment(target.minor, NUMPYS[target.minor][-1]) / f"lib/python{target.minor}/site-packages"


@pytest.fixture
def setup(programs, stub, target, numpy, tmp_path):
    """Variables of the stub's cases; see stub_process.h."""
    yield {
        "ENVPACK_TEST_STUB": str(stub),
        "ENVPACK_TEST_LIBRARIES": str(interpreter_for(target.minor).prefix / "lib"),
        "ENVPACK_TEST_LIBPYTHON": target.library.name,
        "ENVPACK_TEST_PYTHONPATH": str(numpy),
        "ENVPACK_TEST_SCRATCH": str(tmp_path),
        "ENVPACK_TEST_CUDA": str(programs / "cuda"),
    }
    shutil.rmtree(tmp_path)


@pytest.mark.parametrize("case", STUB)
def test_stub(programs, setup, case):
    run(programs / "stub_tests", case, **setup)


def test_layouts(target, tmp_path):
    """Every record and command number agrees with the data of each release; reading headers takes most of the time."""
    write_headers(tmp_path, source_folder())
    sources = {release: checks_of(release, LAYOUTS) for release in all_releases()}
    if not compiles("\n".join(sources.values()), tmp_path):
        pytest.fail(f"wrong: {[release for release, source in sources.items() if not compiles(source, tmp_path)]}")


@pytest.mark.parametrize(
    ("true", "false"),
    [
        ("release_flags 88", "release_flags 96"),
        ("u64 timeout_us 56", "u32 timeout_us 56"),
        ("Request 24.04 120:", "Request 24.04 128:"),
        ("command LogRequest 23.04=14 23.11=16", "command LogRequest 23.04=14"),
    ],
)
def test_wrong_layouts_are_detected(true, false, tmp_path):
    shutil.copytree(source_folder() / "stub_src/abi", tmp_path / "stub_src/abi")
    for name in ("stub_src/epochs.cmake", "envpack/releases.toml"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(source_folder() / name, tmp_path / name)
    layouts = tmp_path / "stub_src/abi/layouts.txt"
    facts = layouts.read_text()
    assert true in facts
    layouts.write_text(facts.replace(true, false))
    write_headers(tmp_path, tmp_path)
    assert not all(compiles(checks_of(release, layouts), tmp_path) for release in ("23.12", "24.10"))


def checks_of(release, layouts):
    """The C++ source that checks a release."""
    return run_python(HERE / "abi/generate.py", layouts, "checks", release)


def compiles(source, headers):
    boost = boost_folder() / "include"
    command = [*find_toolchain().compiler, "-std=c++17", "-Wno-invalid-offsetof", "-I", headers]
    command += ["-I", source_folder() / "stub_src", "-isystem", boost]
    # Not -fsyntax-only: zig looks for the object file, which that does not make.
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "checks.cc").write_text(source)
        command += ["-c", f"{folder}/checks.cc", "-o", f"{folder}/checks.o"]
        done = subprocess.run(command, capture_output=True, text=True, env=clean_environment(), check=False)
    assert done.returncode == 0 or "static assertion failed" in done.stderr, done.stderr
    return done.returncode == 0


def run_python(*command):
    return subprocess.run([sys.executable, *command], capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("release", all_releases())
def test_conversation(release, programs, setup):
    """The stub serves a model, with the test's peer as a server of this release."""
    output = run(programs / "stub_tests", *RELEASE, ENVPACK_TEST_RELEASE=release.replace(".", ""), **setup)
    assert output == ""
