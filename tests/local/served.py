"""The models of tests/server/stub without a server, behind the interface that its tests use."""

import dataclasses
import json
import os
import threading
from pathlib import Path

import pytest

from envpack.local.model_config import config_json
from envpack.local.model_process import ModelFailed
from envpack.local.server import LocalServer
from envpack.local.starting import ModelSource, Python
from envpack.local.values import NOTHING, RawTensor, Request, readable
from envpack.repository.model import Model, open_model
from envpack.server.kserve import RequestError
from envpack.server.tensors import Tensor, encode
from tests.server.stub.conftest import Served

RELEASE = 2410
# How a server's HTTP answers with each code of an error.
STATUS = {0: 400, 1: 500, 2: 404, 3: 400, 4: 503, 5: 501, 6: 400, 7: 400}


def requested(model, tensors, parameters=None, **fields):
    """A request as a server makes it from a client's."""
    return Request(
        tuple(RawTensor(t.name, t.datatype, t.shape, encode(t.datatype, t.data)) for t in tensors),
        parameters=json.dumps(parameters or {}, separators=(",", ":")),
        model=model,
        **fields,
    )


class LocalClient:
    """What the tests use of `envpack.server.kserve.Client`."""

    def __init__(self, server):
        self.server = server

    def infer(self, model, inputs, *, binary=None, parameters=None, **fields):
        try:
            answered = self.server.stream(requested(model, inputs, parameters, **fields))
            responses = [response for response, _ in answered if response is not NOTHING]
        except ModelFailed as error:
            raise RequestError(error.text, status=400) from error
        if len(responses) != 1:
            raise RequestError(f"expected a single response, got {len(responses)}", status=400)
        (response,) = responses
        if response.error is not None:
            raise RequestError(response.error, status=STATUS[response.code])
        return tuple(map(readable, response.outputs))

    def config(self, model):
        return json.loads(config_json(self.server.model(model).config))

    def load(self, model, *, timeout):
        try:
            self.server.model(model)
        except ModelFailed as error:
            raise RequestError(error.text, status=400) from error

    def unload(self, model):
        self.server.unload(model)


class Failures(dict):
    """Why models cannot be loaded; each is loaded when it is first asked for."""

    def __init__(self, client):
        super().__init__()
        self._client = client

    def __missing__(self, name):
        with pytest.raises(RequestError) as caught:
            self._client.load(name, timeout=0)
        return caught.value.message


class LocalServed(Served):
    """The models of one Python; what they log and print is in one file."""

    def __init__(self, python, repository, log, variables):
        self.python = python
        self.repository = repository
        self.libraries = os.environ.get("LD_LIBRARY_PATH", "")
        self._file = log
        self._lock = threading.Lock()
        self._output = log.open("ab", buffering=0)
        self._variables = variables
        self.models = LocalServer(self._find, release=RELEASE, log=self._write, output=self._output)
        self.server = self  # for its log
        self.client = LocalClient(self.models)
        self.failures = Failures(self.client)

    def close(self):
        self.models.stop()
        self._output.close()

    def log(self):
        """What the models have printed and logged."""
        return self._file.read_text(errors="replace")

    def stubs(self, model):
        return [self.models.model(model).process.pid]

    workers = stubs

    def frees_all_again(self, free, model="script"):
        """There is no region: the free memory is the machine's, which other programs use and free as well."""
        return self.free(model) > 0 < free

    def post(self, model, request):
        """Send a request as JSON, as a client of a server would."""
        inputs = [
            Tensor(i["name"], i["datatype"], tuple(i["shape"]), tuple(text.encode() for text in i["data"]))
            for i in request["inputs"]
        ]
        names = frozenset(output["name"] for output in request.get("outputs", ()))
        parameters = request.get("parameters")
        outputs = self.client.infer(model, inputs, parameters=parameters, outputs=names, id=request.get("id", ""))
        shown = [{"name": o.name, "shape": list(o.shape), "data": [item.decode() for item in o.data]} for o in outputs]
        return {"id": request.get("id", ""), "outputs": shown}

    def stream(self, code):
        """What the decoupled script model answers, one item for each response: values, or an error's text."""
        tensor = RawTensor("CODE", "BYTES", (1,), encode("BYTES", [code.encode()]))
        answers = []
        for response, _ in self.models.stream(Request((tensor,), model="stream")):
            if response.error is not None:
                answers.append(response.error)
            answers += [json.loads(t.data[0]) for t in map(readable, response.outputs) if t.name == "OUT"]
        return answers

    def _write(self, line):
        with self._lock:
            self._output.write(f'{line.level[0].upper()} {line.place}] "{line.text}"\n'.encode())

    def _find(self, name):
        folder = self.repository / name
        if not folder.is_dir():
            return None
        return dataclasses.replace(source_of(open_model(folder)), variables=self._variables)


def source_of(model: Model):
    """The environment and the stub that lie beside a model."""
    environment = model.config.parameters["EXECUTION_ENV_PATH"].string_value
    python = Python(model.folder / "triton_python_backend_stub", Path(environment))
    return ModelSource(name=model.name, folder=model.folder, version="1", config=model.config, python=python)
