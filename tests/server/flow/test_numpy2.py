"""The trap of releases up to 24.10: their own stub answers with empty tensors under NumPy 2. Found, and cured."""

import json
import subprocess
import sys

import pytest

from envpack.environment import interpreter_for
from envpack.errors import EnvpackError
from envpack.releases import DEFAULT_RELEASE, find_release

MODEL = """
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


def _envpack(*arguments):
    command = [sys.executable, "-m", "envpack.cli", *map(str, arguments), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, json.loads(done.stdout)


def test_the_releases_own_stub_is_found_out_and_ours_is_the_cure(tmp_path):
    python = find_release(DEFAULT_RELEASE).python
    try:
        interpreter_for(python)
    except EnvpackError as error:
        pytest.skip(f"needs Python {python}: {error}")
    model = tmp_path / "doubler"
    (model / "1").mkdir(parents=True)
    (model / "1/model.py").write_text(MODEL)
    (model / "config.pbtxt").write_text(CONFIG)
    (model / "requirements.txt").write_text("numpy>=2\n")

    build = ("build", "doubler", "--python", python, "--repository", tmp_path)
    assert _envpack(*build, "--stub", "never")[0] == 0
    code, document = _envpack("verify", "--repository", tmp_path)
    (verdict,) = document["verdict"]["models"]
    assert code == 1
    assert verdict["failure"]["kind"] == "numpy-unsupported"
    infer = next(check for check in verdict["checks"] if check["id"] == "infer")
    assert "is empty" in infer["evidence"]

    assert _envpack(*build)[0] == 0
    code, document = _envpack("verify", "--repository", tmp_path)
    assert code == 0, document
