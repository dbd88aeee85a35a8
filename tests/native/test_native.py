"""Builds the C++ tests once and runs each of their cases as a test of its own."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from envpack.environment import interpreter_for
from envpack.environment.isolation import clean_environment
from envpack.errors import EnvpackError
from envpack.stub import build_stub, target_from_interpreter
from envpack.stub.build import STUB_NAME
from envpack.stub.source import source_folder
from envpack.stub.toolchain import find_tool, required_package_folder

HERE = Path(__file__).parent
MINOR = f"{sys.version_info.major}.{sys.version_info.minor}"


# Another run of these tests may be under way on this machine.
REGIONS = f"envpack_native_{os.getpid()}_"

SANITIZERS = {name: value for name, value in os.environ.items() if name.endswith("SAN_OPTIONS")}


def cases(*files):
    return [name for file in files for name in re.findall(r"^CASE\((\w+)\)", (HERE / file).read_text(), re.MULTILINE)]


WIRE = cases("region_test.cc", "queue_test.cc", "codec_test.cc", "channel_test.cc")
STUB = cases("damage_test.cc", "execute_test.cc", "gpu_test.cc", "guard_test.cc", "life_test.cc", "senders_test.cc")


@pytest.fixture(scope="session")
def target():
    try:
        return target_from_interpreter(MINOR)
    except EnvpackError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def cache(tmp_path_factory):
    kept = os.environ.get("ENVPACK_TEST_CACHE")
    return Path(kept) if kept else tmp_path_factory.mktemp("native")


def _build(folder, target, programs, *options):
    prefixes = [
        required_package_folder("pybind11", "pybind11"),
        required_package_folder("libboost_headers", "libboost-headers"),
    ]
    configure = [
        find_tool("cmake"),
        "-S", source_folder(),
        "-B", folder,
        "-GNinja",
        f"-DCMAKE_MAKE_PROGRAM={find_tool('ninja')}",
        f"-DCMAKE_PREFIX_PATH={';'.join(map(str, prefixes))}",
        f"-DPython_EXECUTABLE={target.executable}",
        f"-DPython_INCLUDE_DIR={target.include}",
        f"-DPython_LIBRARY={target.library}",
        "-DENVPACK_NATIVE_TESTS=ON",
        *options,
    ]  # fmt: skip
    for command in (configure, [find_tool("cmake"), "--build", folder, "--target", *programs]):
        done = subprocess.run(command, env=clean_environment(), capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return folder / "tests/native"


@pytest.fixture(scope="session")
def programs(cache, target):
    return _build(cache / "native-build", target, ["wire_tests", "stub_tests"])


@pytest.fixture(scope="session", params=["address,undefined", "thread"])
def sanitized(cache, target, request):
    name = f"native-{request.param.partition(',')[0]}"
    return _build(cache / name, target, ["wire_tests", "fuzz_replay"], f"-DENVPACK_SANITIZE={request.param}")


@pytest.fixture(scope="session")
def stub(cache, target):
    if "ENVPACK_TEST_STUBS" in os.environ:  # see ci/sanitized.py
        return Path(os.environ["ENVPACK_TEST_STUBS"]) / target.minor / STUB_NAME
    return build_stub(target, cache=cache / "stubs").path


@pytest.fixture(autouse=True)
def no_region_is_left():
    yield
    assert list(Path("/dev/shm").glob(f"{REGIONS}*")) == []


def run(program, *arguments, **variables):
    done = subprocess.run(
        [program, *arguments],
        env={**clean_environment(), **SANITIZERS, "ENVPACK_TEST_REGIONS": REGIONS, **variables},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_every_case_of_the_sources_is_in_the_programs(programs):
    assert run(programs / "wire_tests", "--list").split() == sorted(WIRE)
    assert run(programs / "stub_tests", "--list").split() == sorted(STUB)


@pytest.mark.parametrize("case", WIRE)
def test_wire(programs, case):
    run(programs / "wire_tests", case)


@pytest.mark.parametrize("case", WIRE)
def test_wire_under_sanitizers(sanitized, case):
    run(sanitized / "wire_tests", case, UBSAN_OPTIONS="halt_on_error=1:print_stacktrace=1")  # the others halt anyway


def test_messages_of_a_hostile_server_are_read_or_refused(sanitized):
    corpus = sorted((HERE.parent / "fuzz/corpus").iterdir())
    told = run(sanitized.parent / "fuzz/fuzz_replay", *corpus, UBSAN_OPTIONS="halt_on_error=1:print_stacktrace=1")
    assert {line.partition(" ")[0] for line in told.splitlines()} == {"read", "refused"}


@pytest.mark.parametrize("case", STUB)
def test_stub(programs, stub, target, tmp_path, case):
    interpreter = interpreter_for(MINOR)
    variables = {
        "ENVPACK_TEST_STUB": str(stub),
        "ENVPACK_TEST_LIBRARIES": str(interpreter.prefix / "lib"),
        "ENVPACK_TEST_LIBPYTHON": target.library.name,
        "ENVPACK_TEST_PYTHONPATH": str(Path(np.__file__).parent.parent),
        "ENVPACK_TEST_SCRATCH": str(tmp_path),
        "ENVPACK_TEST_CUDA": str(programs / "cuda"),
    }
    run(programs / "stub_tests", case, **variables)
    shutil.rmtree(tmp_path)
