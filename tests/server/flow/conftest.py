"""A small model, and the command line as a program would use it."""

import json
import subprocess
import sys

import pytest

from tests.server.flow.developing import developments

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


@pytest.fixture
def doubler(tmp_path):
    """Folder of a model that doubles what it gets; its parent is a repository of that one model."""
    folder = tmp_path / "repository/doubler"
    (folder / "1").mkdir(parents=True)
    (folder / "1/model.py").write_text(MODEL)
    (folder / "config.pbtxt").write_text(CONFIG)
    return folder


@pytest.fixture
def envpack_json():
    """Runs one command with --json; gives its exit code and document."""

    def run(*arguments):
        command = [sys.executable, "-m", "envpack", *map(str, arguments), "--json"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.stdout, done.stderr
        return done.returncode, json.loads(done.stdout)

    return run


@pytest.fixture
def develop():
    """Starts `envpack dev`; what is started is killed in the end."""
    with developments() as start:
        yield start


@pytest.fixture
def required(doubler):
    """The same model, with a file of requirements."""
    (doubler / "requirements.txt").write_text("numpy\n")
    return doubler
