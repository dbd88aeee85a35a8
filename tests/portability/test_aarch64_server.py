"""The real server for aarch64, from its wheel, runs in qemu-user and serves a model with our stub for aarch64.

pytest tests/portability/test_aarch64_server.py --release 23.10 --release 24.04    others, if a wheel carries them
"""

import dataclasses
import subprocess
import sys

import pytest
from filelock import FileLock

from envpack.server.kserve import Client, RequestError
from envpack.server.launch import find_server
from envpack.server.process import ProcessRuntime
from envpack.server.tensors import Tensor
from envpack.settings.releases import find_release
from envpack.stub.build import build_stub
from envpack.stub.recipe import Cell
from envpack.support.placed_files import STUB_NAME
from envpack.support.replacement import replaced_folder

MODEL = """
import platform

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        pb_utils.Logger.log_info(f"model on {platform.machine()}")
        return [self.answer(pb_utils.get_input_tensor_by_name(request, "X").as_numpy()) for request in requests]

    def answer(self, numbers):
        if numbers[0] < 0:
            return pb_utils.InferenceResponse(error=pb_utils.TritonError("no negative numbers"))
        where = np.array([platform.machine().encode()], dtype=object)
        return pb_utils.InferenceResponse([pb_utils.Tensor("Y", numbers * 2), pb_utils.Tensor("WHERE", where)])
"""
CONFIG = """
backend: "python"
input [ { name: "X", data_type: TYPE_FP32, dims: [ 2 ] } ]
output [ { name: "Y", data_type: TYPE_FP32, dims: [ 2 ] }, { name: "WHERE", data_type: TYPE_STRING, dims: [ 1 ] } ]
instance_group [ { kind: KIND_CPU } ]
parameters { key: "EXECUTION_ENV_PATH" value { string_value: "%s" } }
"""
SECONDS = 60


def pytest_generate_tests(metafunc):
    releases = metafunc.config.getoption("--release") or ["24.10"]
    metafunc.parametrize("release", releases, scope="module")


@pytest.fixture(scope="module")
def installation(cache, release):
    """The server of a release, from the same wheels as on x86-64."""
    wheel = find_release(release).wheel
    packages = cache / f"servers/nvidia-pytriton-{wheel}-aarch64"
    packages.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{packages}.lock"):
        if not packages.is_dir():
            with replaced_folder(packages) as made:
                _fetch(wheel, made)
    return find_server(packages / "pytriton/tritonserver")


def _fetch(wheel, folder):
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-compile", "--target", folder]
    options = ["--only-binary=:all:", "--platform", "manylinux_2_35_aarch64", f"nvidia-pytriton=={wheel}"]
    done = subprocess.run([*command, *options], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"the server for aarch64 could not be fetched: {done.stderr[-300:]}")


@pytest.fixture(scope="module")
def served(release, installation, arm64_target, arm64_machine, arm64_environment, tmp_path_factory):
    folder = tmp_path_factory.mktemp("aarch64")
    environment = arm64_machine.beside(arm64_environment, folder / "environment")
    (folder / "repository/model/1").mkdir(parents=True)
    (folder / "repository/model/1/model.py").write_text(MODEL)
    (folder / "repository/model/config.pbtxt").write_text(CONFIG % environment)
    stub = build_stub(Cell(arm64_target, toolchain="zig")).path
    # qemu hides the server's executable from the stub, so the release must be set for the stub.
    arm64_machine.script(stub, folder / "repository/model" / STUB_NAME, ENVPACK_TRITON_RELEASE=release)
    server = arm64_machine.script(
        installation.executable, folder / "tritonserver", LD_LIBRARY_PATH=installation.library_path
    )
    pretended = dataclasses.replace(installation, executable=server, library_path="", stubs={})
    with ProcessRuntime(pretended, start_seconds=SECONDS).start(folder / "repository") as running:
        client = Client(running.url, timeout=SECONDS)
        client.load("model", timeout=SECONDS)
        yield running, client
    stopped = running.stop()
    assert (stopped.forced, stopped.leftovers) == (False, ())


def test_a_model_answers(served):
    running, client = served
    answers = {tensor.name: tensor.data for tensor in client.infer("model", [Tensor("X", "FP32", (2,), (1.5, 2.5))])}
    assert answers == {"Y": (3.0, 5.0), "WHERE": (b"aarch64",)}
    assert "model on aarch64" in running.log()
    assert "envpack-stub {" in running.log()


def test_an_error_arrives(served):
    _, client = served
    with pytest.raises(RequestError, match="no negative numbers"):
        client.infer("model", [Tensor("X", "FP32", (2,), (-1.0, 0.0))])


def test_memory_goes_back(served):
    """A thousand responses in a region of one megabyte."""
    _, client = served
    for number in range(1000):
        answers = client.infer("model", [Tensor("X", "FP32", (2,), (float(number), 0.0))])
        assert answers[0].data[0] == number * 2
