"""A real server that reads an object store while others publish: what it serves is one publication, or says so."""

import contextlib
import json
import threading
import time
import urllib.error
import urllib.request

import pytest

from envpack.server.launch import find_server
from envpack.server.process import ProcessRuntime
from tests.needed_pythons import need
from tests.object_stores import BUCKET, OTHERS, VARIABLES, faulty, moto
from tests.waiting import soon

PYTHON = "3.13"
MODEL = """
import json

import numpy as np
import triton_python_backend_utils as pb_utils

import sibling

CODE = {number}


class TritonPythonModel:
    def initialize(self, args):
        parameters = json.loads(args["model_config"])["parameters"]
        self.seen = [CODE, sibling.NUMBER, int(parameters["number"]["string_value"])]

    def execute(self, requests):
        return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", np.array(self.seen, np.int32))]) for _ in requests]
"""
CONFIG = """
backend: "python"
input [ { name: "X", data_type: TYPE_INT32, dims: [ 1 ] } ]
output [ { name: "Y", data_type: TYPE_INT32, dims: [ 3 ] } ]
"""
POLL = ("--model-control-mode=poll", "--repository-poll-secs=1")
REQUEST = json.dumps({"inputs": [{"name": "X", "datatype": "INT32", "shape": [1], "data": [0]}]}).encode()


class Served:
    """The answers of a model's server, asked all the time in a thread."""

    def __init__(self, url):
        self._url, self._ended = f"{url}/v2/models/seen/infer", threading.Event()
        self.answers, self.failures = [], []
        self._thread = threading.Thread(target=self._ask, daemon=True)

    def ask(self):
        with urllib.request.urlopen(urllib.request.Request(self._url, REQUEST), timeout=60) as answer:
            return tuple(json.load(answer)["outputs"][0]["data"])

    def answers_with(self, number):
        """Whether it serves a publication, and nothing of others."""
        with contextlib.suppress(urllib.error.URLError):
            return self.ask() == (number,) * 3

    def _ask(self):
        while not self._ended.is_set():
            try:
                self.answers.append(self.ask())
            except OSError as error:
                self.failures.append(str(error))

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._ended.set()
        self._thread.join(60)


@contextlib.contextmanager
def serving(address, tmp_path, name):
    """A server that loads all models of an address, and looks for changes each second."""
    (tmp_path / name).mkdir()
    arguments = (f"--model-repository={address}", *POLL)
    # Its models are fetched and loaded before it answers.
    runtime = ProcessRuntime(find_server(None), environment=VARIABLES, arguments=arguments, start_seconds=120)
    with runtime.start(tmp_path / name) as server:
        served = Served(server.url)
        yield served


@pytest.fixture
def store(tmp_path, monkeypatch):
    """A proxy in front of an object store, which is slow to take objects."""
    need(PYTHON)
    for name in OTHERS:
        monkeypatch.delenv(name, raising=False)
    for name, value in VARIABLES.items():
        monkeypatch.setenv(name, value)
    with moto(tmp_path) as address, faulty(address) as proxy:

        def slow(method, path):
            time.sleep(0.1 if method == "PUT" else 0)
            return False

        proxy.refuses = slow
        yield proxy


@pytest.fixture
def write(tmp_path, envpack_json):
    """Writes the model with a number in each of its files; it is built once."""
    folder = tmp_path / "repository/seen"
    (folder / "1").mkdir(parents=True)

    def written(number):
        (folder / "1/model.py").write_text(MODEL.replace("{number}", str(number)))
        (folder / "1/sibling.py").write_text(f"NUMBER = {number}\n")
        parameter = 'parameters { key: "number" value { string_value: "%d" } }\n'
        config = folder / "config.pbtxt"
        kept = config.read_text() if config.exists() else CONFIG + parameter % -1
        old = next(line for line in kept.splitlines() if '"number"' in line)
        config.write_text(kept.replace(old, (parameter % number).strip()))

    written(0)
    words = ("--repository", folder.parent, "--python", PYTHON, "--format", "tar.gz")
    code, document = envpack_json("build", "seen", *words)
    assert code == 0, document
    return written


def publish(envpack_json, tmp_path, url, *words):
    code, document = envpack_json("publish", url, "--repository", tmp_path / "repository", *words)
    assert code == 0, document
    return document["url"]


@pytest.mark.thorough
def test_a_server_of_an_address_with_a_digest_never_sees_another_publication(store, write, envpack_json, tmp_path):
    template = f"s3://{store.url}/{BUCKET}/{{digest}}"
    first = publish(envpack_json, tmp_path, template)
    with serving(first, tmp_path, "one") as served:
        assert soon(lambda: served.answers_with(0), seconds=120)
        with served:
            for number in range(1, 21):
                write(number)
                last = publish(envpack_json, tmp_path, template)
    assert served.failures == []
    assert len(served.answers) > 100
    assert set(served.answers) == {(0, 0, 0)}
    with serving(last, tmp_path, "two") as served:
        assert soon(lambda: served.answers_with(20), seconds=120)


@pytest.mark.thorough
def test_a_server_that_polls_comes_to_serve_each_publication_and_answers_meanwhile(
    store, write, envpack_json, tmp_path
):
    address = f"s3://{store.url}/{BUCKET}/models"
    publish(envpack_json, tmp_path, address)
    with serving(address, tmp_path, "one") as served:
        assert soon(lambda: served.answers_with(0), seconds=120)
        with served:
            for number in range(1, 6):
                write(number)
                publish(envpack_json, tmp_path, address)
                assert soon(lambda number=number: served.answers_with(number), seconds=120)
    assert served.failures == []
    assert served.answers[-1] == (5, 5, 5)
