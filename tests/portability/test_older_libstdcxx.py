"""The real server with an environment whose libstdc++ is older than the one of this machine, where stubs are compiled.

The server puts the environment's lib in front of LD_LIBRARY_PATH, so the older library is the one that programs of the
environment get.
"""

import subprocess

import pytest

from envpack.server.kserve import Client
from envpack.server.launch import find_server
from envpack.server.process import ProcessRuntime
from envpack.server.tensors import Tensor
from envpack.stub.build import build_stub
from envpack.stub.recipe import Cell
from envpack.stub.target import target_from_interpreter
from envpack.support.errors import ServerError
from envpack.support.placed_files import STUB_NAME
from tests.needed_pythons import need
from tests.portability.environments import copy_library
from tests.portability.machinery import debian_root
from tests.server.model_environments import NUMPYS, ModelEnvironments

PYTHON = "3.10"  # for which the wheel of 24.10 has a stub of its own
LIBRARY = "libstdc++.so.6"
NEWEST_OF_DEBIAN_11 = b"GLIBCXX_3.4.28"
MODEL = """
import ctypes

import numpy as np
import triton_python_backend_utils as pb_utils

ctypes.CDLL("libstdc++.so.6")  # as extension modules in C++ do


class TritonPythonModel:
    def execute(self, requests):
        with open("/proc/self/maps") as maps:
            mapped = sorted({line.split()[-1].encode() for line in maps if "libstdc++" in line})
        answer = pb_utils.Tensor("MAPPED", np.array(mapped, dtype=object))
        return [pb_utils.InferenceResponse([answer]) for request in requests]
"""
CONFIG = """
backend: "python"
input [ { name: "X", data_type: TYPE_FP32, dims: [ 1 ] } ]
output [ { name: "MAPPED", data_type: TYPE_STRING, dims: [ -1 ] } ]
parameters { key: "EXECUTION_ENV_PATH" value { string_value: "%s" } }
"""


@pytest.fixture(scope="module")
def environment(cache):
    """An environment with NumPy and the libstdc++ of Debian 11 in its lib."""
    need(PYTHON)
    model_environments = ModelEnvironments(cache)
    usual = model_environments.environment(PYTHON, NUMPYS[PYTHON][0])
    folder = model_environments.variant(usual, "older-libstdcxx", "true")
    if (folder / "lib").is_symlink():
        (folder / "lib").unlink()
        (folder / "lib").mkdir()
        for entry in (usual / "lib").iterdir():
            (folder / "lib" / entry.name).symlink_to(entry)
    root = debian_root(cache / "debian/bullseye-libstdcxx", "bullseye", "libstdc++6", variant="extract")
    copy_library(LIBRARY, [root / "usr/lib/x86_64-linux-gnu", root / "lib/x86_64-linux-gnu"], folder / "lib")
    versions = (folder / "lib" / LIBRARY).read_bytes()
    assert NEWEST_OF_DEBIAN_11 in versions
    assert NEWEST_OF_DEBIAN_11.replace(b"28", b"30") not in versions
    return folder


@pytest.fixture(scope="module")
def installation():
    try:
        return find_server()
    except ServerError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("toolchain", ["system", "zig"])
def test_our_stub_serves_beside_it(toolchain, environment, installation, tmp_path):
    stub = build_stub(Cell(target_from_interpreter(PYTHON), toolchain=toolchain))
    assert not [name for name in stub.facts.needs if "stdc++" in name]
    model = tmp_path / "repository/model"
    (model / "1").mkdir(parents=True)
    (model / "1/model.py").write_text(MODEL)
    (model / "config.pbtxt").write_text(CONFIG % environment)
    (model / STUB_NAME).write_bytes(stub.path.read_bytes())
    (model / STUB_NAME).chmod(0o755)
    with ProcessRuntime(installation).start(model.parent) as server:
        client = Client(server.url, timeout=60)
        client.load("model", timeout=60)
        (answer,) = client.infer("model", [Tensor("X", "FP32", (1,), (1.0,))])
    assert answer.data == (str(environment / "lib" / LIBRARY).encode(),)  # the older one, and no other


def test_the_stub_of_the_release_does_not_start_beside_it(environment, installation):
    """Confirms the cause: a stub that links to the libstdc++ of its environment fails."""
    if PYTHON not in installation.stubs:
        pytest.skip(f"the wheel of the server has no stub for Python {PYTHON}")
    variables = {"LD_LIBRARY_PATH": f"{environment / 'lib'}:{installation.library_path}"}
    done = subprocess.run(
        [installation.stubs[PYTHON]], env=variables, capture_output=True, text=True, check=False, timeout=60
    )
    assert "GLIBCXX_3.4." in done.stderr
    assert "not found" in done.stderr
