"""`envpack dev`: a model is changed while the real server runs it."""

import json
import os
import signal
import subprocess
import sys

import pytest

from envpack.releases import DEFAULT_RELEASE, find_release
from envpack.server.kserve import Client, RequestError
from envpack.server.tensors import Tensor
from tests.cache import kept_cache

ENSEMBLE = """
platform: "ensemble"
input [ { name: "IN", data_type: TYPE_FP32, dims: [ 2 ] } ]
output [ { name: "OUT", data_type: TYPE_FP32, dims: [ 2 ] } ]
ensemble_scheduling { step [
  { model_name: "doubler" model_version: -1 input_map { key: "X" value: "IN" } output_map { key: "Y" value: "OUT" } }
] }
"""


class Development:
    """A running `envpack dev`; its lines are its events."""

    def __init__(self, repository):
        words = ["--repository", repository, "--python", find_release(DEFAULT_RELEASE).python, "--json"]
        environment = os.environ | {"ENVPACK_CACHE_DIR": str(kept_cache()), "NO_COLOR": "1"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "envpack.cli", "dev", *words],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.lines = []

    def wait_for(self, text):
        """The next line that has this text."""
        for line in self.process.stderr:
            self.lines.append(line)
            if text in line:
                return line
        pytest.fail(f"no line {text!r} in:\n{''.join(self.lines)}")

    def end(self):
        """Press Ctrl-C; returns the JSON document."""
        self.process.send_signal(signal.SIGINT)
        output, errors = self.process.communicate(timeout=60)
        assert self.process.returncode == 0, errors
        return json.loads(output)


@pytest.fixture
def development(doubler):
    (doubler.parent / "both/1").mkdir(parents=True)
    (doubler.parent / "both/config.pbtxt").write_text(ENSEMBLE)
    (doubler / "requirements.txt").write_text("numpy\n")
    running = Development(doubler.parent)
    yield running
    running.process.kill()
    running.process.communicate()


def test_changes_of_code_configuration_and_requirements_reach_the_server(doubler, development):
    client = Client(development.wait_for("both: ready").split(" at ")[1].strip(), timeout=60)

    def answer(model="doubler", name="X"):
        (output,) = client.infer(model, [Tensor(name, "FP32", (2,), (1, 2))])
        return output.data

    assert answer() == (2, 4)
    code = (doubler / "1/model.py").read_text()

    (doubler / "1/model.py").write_text(code.replace("* 2", "* 3"))
    development.wait_for("both: ready")
    assert answer() == answer("both", "IN") == (3, 6)

    (doubler / "1/model.py").write_text("raise ValueError('not yet')\n")
    development.wait_for("doubler: failed")
    assert "ValueError: not yet" in development.wait_for("not yet")
    assert answer() == (3, 6), "the server goes on with what it had"

    (doubler / "1/model.py").write_text(f"import six\n{code}".replace("* 2", "* len(six.__name__)"))
    development.wait_for("doubler: failed")
    assert "No module named 'six'" in development.wait_for("six")
    (doubler / "requirements.txt").write_text("numpy\nsix\n")
    development.wait_for("doubler: ready")
    assert answer() == (3, 6)

    config = (doubler / "config.pbtxt").read_text()
    (doubler / "config.pbtxt").write_text(config.replace("dims: [ 2 ]", "dims: [ -1 ]"))
    development.wait_for("doubler: ready")
    assert client.config("doubler")["input"][0]["dims"] == [-1]

    document = development.end()
    states = {model["name"]: model for model in document["models"]}
    assert states["doubler"]["loads"] == 4
    assert states["doubler"]["memory"][0] > 1 << 20
    with pytest.raises(RequestError):
        client.index()
