"""Runs `envpack dev` as a user does; its lines are its events."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from envpack.server.kserve import Client
from envpack.server.tensors import Tensor
from envpack.settings.releases import find_release
from envpack.settings.table import DEFAULT_RELEASE
from tests.cache import kept_cache
from tests.needed_pythons import need


class Development:
    """A running `envpack dev`."""

    def __init__(self, repository, *options):
        self.temporary = repository.parent / "temporary"
        self.temporary.mkdir(exist_ok=True)
        python = need(find_release(DEFAULT_RELEASE).python)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "envpack", "dev", "--repository", repository, "--python", python, *options],
            env=os.environ | {"ENVPACK_CACHE_DIR": str(kept_cache()), "NO_COLOR": "1", "TMPDIR": str(self.temporary)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.lines = []
        self.client = None

    def wait_for(self, text):
        """The next line that has this text."""
        for line in self.process.stderr:
            self.lines.append(line)
            if text in line:
                return line
        pytest.fail(f"no line {text!r} in:\n{''.join(self.lines)}")

    def wait_until_ready(self, model):
        """Wait until a model is ready once more."""
        line = self.wait_for(f"  {model}: ready in ")
        self.client = Client(line.split(" at ")[1].strip(), timeout=60)

    def answer(self, model="doubler", name="X"):
        """What a model answers to (1, 2)."""
        (output,) = self.client.infer(model, [Tensor(name, "FP32", (2,), (1, 2))])
        return output.data

    def left(self):
        """The processes that this command has started and that still run, and its temporary files."""
        running = []
        for process in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if process.name.isdigit() and os.fsencode(self.temporary) in (process / "environ").read_bytes():
                    running.append(process.name)
        return [*running, *(file.name for file in self.temporary.iterdir())]

    def end(self):
        """Press Ctrl-C; returns the states of the models by name, which need --json."""
        self.process.send_signal(signal.SIGINT)
        output, errors = self.process.communicate(timeout=60)
        assert self.process.returncode == 0, errors
        return {model["name"]: model for model in json.loads(output)["models"]}

    def failed(self):
        """Wait for its end by itself; returns the exit code and the rest of its lines."""
        _, errors = self.process.communicate(timeout=120)
        return self.process.returncode, errors


@contextlib.contextmanager
def developments():
    """Starts `envpack dev` during the block; what is started is killed in the end."""
    started = []

    def start(repository, *options):
        started.append(Development(repository, *options))
        return started[-1]

    yield start
    for running in started:
        running.process.kill()
        running.process.communicate()


def write_at_once(file, text):
    """Give a file another content at once, so that this is one change."""
    new = file.with_name(f".{file.name}.new")
    new.write_text(text)
    new.replace(file)


def ensemble(step, name="X", output="Y"):
    """The configuration of an ensemble of one step, whose tensors are IN and OUT."""
    return f"""
platform: "ensemble"
input [ {{ name: "IN", data_type: TYPE_FP32, dims: [ 2 ] }} ]
output [ {{ name: "OUT", data_type: TYPE_FP32, dims: [ 2 ] }} ]
ensemble_scheduling {{ step [ {{
  model_name: "{step}" model_version: -1
  input_map {{ key: "{name}" value: "IN" }} output_map {{ key: "{output}" value: "OUT" }}
}} ] }}
"""
