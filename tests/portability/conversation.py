"""The peer of tests/native, which acts as a server for a stub; zig compiles it for other machines and older glibc."""

import re
import subprocess
from pathlib import Path

from filelock import FileLock

from envpack.stub.cmake import BuildTree
from envpack.stub.recipe import source_folder
from envpack.stub.toolchain import find_tool, find_toolchain, required_package_folder
from envpack.support.isolation import clean_environment

NATIVE = Path(__file__).parents[1] / "native"


def cases(*files):
    """The names of the cases in sources of tests/native."""
    return [name for file in files for name in re.findall(r"^CASE\((\w+)\)", (NATIVE / file).read_text(), re.MULTILINE)]


def build_peer(target, folder):
    """The program `stub_tests` for the machine of a target, which runs from glibc 2.28 on."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{folder}.lock"):
        tree = BuildTree(folder, source_folder(), find_toolchain("zig", machine=target.machine))
        tree.configure(
            {
                "CMAKE_PREFIX_PATH": ";".join(str(required_package_folder(*names)) for names in HEADERS),
                "Python_INCLUDE_DIR": str(target.include),
                "Python_LIBRARY": str(target.library),
                "ENVPACK_NATIVE_TESTS": "ON",
                "CMAKE_BUILD_TYPE": "Release",
            }
        )
        command = [find_tool("cmake"), "--build", folder, "--target", "stub_tests"]
        done = subprocess.run(command, env=clean_environment(), capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return folder / "tests/native"


HEADERS = (("pybind11", "pybind11"), ("libboost_headers", "libboost-headers"))


def variables_for_peer(stub, environment, programs, folder):
    """Environment variables of the peer; see tests/native/stub_process.h."""
    (library,) = (environment / "lib").glob("libpython3.*.so.1.0")
    return {
        "ENVPACK_TEST_STUB": str(stub),
        "ENVPACK_TEST_LIBRARIES": str(environment / "lib"),
        "ENVPACK_TEST_LIBPYTHON": library.name,
        "ENVPACK_TEST_PYTHONPATH": str(environment / "lib/python3/dist-packages"),
        "ENVPACK_TEST_SCRATCH": str(folder),
        "ENVPACK_TEST_CUDA": str(programs / "cuda"),
    }
