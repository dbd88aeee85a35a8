"""The peer of tests/native, which acts as a server for a stub; compiled by zig, for other machines and older glibc."""

import re
from pathlib import Path

NATIVE = Path(__file__).parents[1] / "native"


def cases(*files):
    """The names of the cases in sources of tests/native."""
    return [name for file in files for name in re.findall(r"^CASE\((\w+)\)", (NATIVE / file).read_text(), re.MULTILINE)]


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
