"""A machine without a compiler: the ziglang wheel builds a stub for an old glibc, and the real server runs it."""

import importlib.util
import json
import subprocess
import sys

import pytest

from envpack.environment import available_interpreters
from envpack.verification import find_server

MODEL = """
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [
            pb_utils.InferenceResponse([pb_utils.Tensor("Y", r.inputs()[0].as_numpy() * 2)]) for r in requests
        ]
"""
CONFIG = """
backend: "python"
input [ { name: "X", data_type: TYPE_FP32, dims: [ 2 ] } ]
output [ { name: "Y", data_type: TYPE_FP32, dims: [ 2 ] } ]
"""
SAMPLES = {"data": [{"X": [1.5, 2.5]}], "validation_data": [{"Y": [3.0, 5.0]}]}


def _envpack(*arguments):
    done = subprocess.run(
        [sys.executable, "-m", "envpack.cli", *map(str, arguments), "--json"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_stub_compiled_by_zig_serves_a_model(tmp_path):
    if importlib.util.find_spec("ziglang") is None:
        pytest.skip("the ziglang wheel is not installed")
    find_server()
    interpreters = [found for found in available_interpreters() if found.library is not None]
    if not interpreters:
        pytest.skip("no interpreter with a shared libpython on this machine")
    python = interpreters[-1].minor
    model = tmp_path / "doubler"
    (model / "1").mkdir(parents=True)
    (model / "1/model.py").write_text(MODEL)
    (model / "config.pbtxt").write_text(CONFIG)
    (model / "envpack").mkdir()
    (model / "envpack/smoke.json").write_text(json.dumps(SAMPLES))

    _envpack("build", "doubler", "--python", python, "--stub", "never", "--format", "tar.gz", "--repository", tmp_path)
    stub = _envpack("stub", "--python", python, "--toolchain", "zig", "--output", model)
    assert stub["facts"]["python"] == python
    assert [int(part) for part in stub["facts"]["glibc"].split(".")] <= [2, 28]
    verdict = _envpack("verify", "--repository", tmp_path)["verdict"]
    assert verdict["ok"]
    assert verdict["models"][0]["stub"]["version"]
    assert verdict["models"][0]["samples"]["right"] == 1
