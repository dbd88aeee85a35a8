"""A repository of models that run on `stub_program.py` in place of a stub."""

import functools
import sys
from pathlib import Path

import pytest

from envpack.local.model_process import ModelFailed
from envpack.local.server import LocalServer
from envpack.local.starting import ModelSource, Python
from envpack.local.values import NOTHING, RawTensor, Request
from envpack.repository.model import open_model
from envpack.server.tensors import encode

ROOT = Path(__file__).parents[3]
CONFIG = """backend: "python"
input [ { name: "IN" data_type: TYPE_INT32 dims: [ -1 ] } ]
output [ { name: "OUT" data_type: TYPE_INT32 dims: [ -1 ] } ]
"""
DECOUPLED = "model_transaction_policy { decoupled: true }\n"
HEAD = """import os, signal, time

def ints(content):
    return list(memoryview(content).cast("i"))

def out(request, change=lambda numbers: numbers, **fields):
    (tensor,) = request.inputs
    numbers = change(ints(tensor.content))
    content = b"".join(number.to_bytes(4, "little", signed=True) for number in numbers)
    return Response([replace(tensor, name="OUT", content=content, shape=[len(numbers)])], **fields)
"""
ECHO = "def execute(requests, stub):\n    return [out(request) for _, request in requests]\n"


def tensor(name, *numbers, shape=None):
    return RawTensor(name, "INT32", shape or (len(numbers),), encode("INT32", numbers))


def request(model, *numbers, **fields):
    return Request((tensor("IN", *numbers),), model=model, **fields)


def numbers(response):
    """The content of the only output of a response without an error."""
    assert response.error is None, response.error
    (output,) = response.outputs
    return list(memoryview(bytes(output.content)).cast("i"))


class Repository:
    """Models in a folder, and what runs them."""

    def __init__(self, folder):
        self.folder, self.logged = folder / "models", []
        self.stub, self.prefix = folder / "stub", folder / "prefix"
        program = ROOT / "tests/unit/local/stub_program.py"
        self.stub.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S {program} "$@"\n')
        self.stub.chmod(0o755)
        (self.prefix / "bin").mkdir(parents=True)

    def add(self, name, code=ECHO, config=CONFIG, version="1"):
        place = self.folder / name / version
        place.mkdir(parents=True, exist_ok=True)
        (place / "model.py").write_text(HEAD + code)
        (self.folder / name / "config.pbtxt").write_text(config)

    def source(self, name, **changes):
        folder = self.folder / name
        if not folder.is_dir():
            return None
        model = open_model(folder)
        version = max(entry.name for entry in folder.iterdir() if entry.name.isdigit())
        return ModelSource(
            name=name,
            folder=folder,
            version=version,
            config=model.config,
            python=Python(self.stub, self.prefix),
            **changes,
        )

    def server(self, release=2410, variables=None, **options):
        find = functools.partial(self.source, variables=variables) if variables else self.source
        return LocalServer(find, release=release, log=self.logged.append, **options)

    def texts(self, level=None):
        return [line.text for line in self.logged if level in (None, line.level)]


def infer(server, asked):
    """The only response to a request."""
    responses = [response for response, _ in server.stream(asked) if response is not NOTHING]
    if len(responses) != 1:
        raise ModelFailed(f"expected a single response, got {len(responses)}")
    return responses[0]


@pytest.fixture
def repository(tmp_path):
    return Repository(tmp_path)


@pytest.fixture
def server(repository):
    with repository.server() as found:
        yield found
