"""`load_model()` and `unload_model()` without a server do what they do on the real one."""

import json

import pytest

from envpack.local import local_server
from envpack.repository import backends_folder
from envpack.server import find_server
from envpack.server.kserve import Client
from envpack.server.process import ProcessRuntime
from envpack.server.tensors import Tensor
from envpack.settings import open_project
from envpack.support.errors import ServerError
from tests.cache import kept_cache
from tests.local.served import LocalClient
from tests.local.test_faithful import PYTHON
from tests.server.model_environments import NUMPYS, ModelEnvironments
from tests.waiting import soon

pytestmark = pytest.mark.thorough

HEAD = "import json, os, time\nimport numpy as np\nimport triton_python_backend_utils as pb_utils\n"
# Evaluates expressions in the order in which they come.
DRIVER = (
    HEAD
    + """
def say(name):
    x = pb_utils.Tensor("X", np.zeros(1, np.float32))
    answer = pb_utils.InferenceRequest(model_name=name, inputs=[x], requested_output_names=["Y"]).exec()
    if answer.has_error():
        return answer.error().message()
    return pb_utils.get_output_tensor_by_name(answer, "Y").as_numpy()[0].decode()

def unload(name):
    pb_utils.unload_model(name)
    until = time.monotonic() + 60
    while pb_utils.is_model_ready(name) and time.monotonic() < until:
        time.sleep(0.01)
    return pb_utils.is_model_ready(name)

class TritonPythonModel:
    def initialize(self, args):
        self.args = args

    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        code = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()[0].decode()
        scope = {"config": json.loads(self.args["model_config"]), "load": pb_utils.load_model, "json": json,
                 "say": say, "unload": unload, "ready": pb_utils.is_model_ready}
        try:
            told = repr(eval(code, scope))
        except Exception as error:
            told = "%s: %s" % (type(error).__name__, str(error).partition("At:")[0])
        return pb_utils.InferenceResponse([pb_utils.Tensor("Y", np.array([told], dtype=object))])
"""
)
# Says which of its sources it is, and with which configuration it runs.
TOLD = (
    HEAD
    + """
class TritonPythonModel:
    def initialize(self, args):
        config = json.loads(args["model_config"])
        self.calls = 0
        self.told = ["SOURCE", config["parameters"].get("a"), args["model_version"], config["name"]]

    def execute(self, requests):
        self.calls += len(requests)
        told = json.dumps([*self.told, self.calls])
        return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", np.array([told], dtype=object))]) for _ in requests]
"""
)
IO = 'input [ {{ name: "X" data_type: {} dims: [ 1 ] }} ] output [ {{ name: "Y" data_type: TYPE_STRING dims: [ 1 ] }} ]'
FILE = {"file:1/model.py": TOLD.replace("SOURCE", "given").encode()}
GIVEN = (
    "json.dumps({'backend': 'python', 'output': config['output'], 'input': [{'name': 'X', 'data_type': 'TYPE_FP32', "
    "'dims': [1]}], 'parameters': {**config['parameters'], 'a': {'string_value': %r}}, **%r})"
)


def given(text="given", **fields):
    return GIVEN % (text, fields)


def pytest_generate_tests(metafunc):
    """Not the Pythons of the other modules."""


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    environments = ModelEnvironments(kept_cache())
    # The oldest NumPy: models that are one file run under the release's own stub, which sends no texts with NumPy 2.
    environment, stub = environments.environment(PYTHON, NUMPYS[PYTHON][0]), environments.stub(PYTHON)
    folder = tmp_path_factory.mktemp("loading")
    for name, datatype, sources in (("driver", "TYPE_STRING", [DRIVER]), ("plain", "TYPE_FP32", [TOLD, TOLD])):
        for version, source in enumerate(sources, start=1):
            (folder / name / str(version)).mkdir(parents=True)
            (folder / name / str(version) / "model.py").write_text(source.replace("SOURCE", f"version {version}"))
        parameter = f'parameters {{ key: "EXECUTION_ENV_PATH" value {{ string_value: "{environment}" }} }}'
        (folder / name / "config.pbtxt").write_text(f'backend: "python"\n{IO.format(datatype)}\n{parameter}\n')
        (folder / name / stub.name).symlink_to(stub)
    # A model that is one file has no stub beside it: the server has one of its own, and a run takes this one.
    backend = backends_folder(open_project(folder)) / "python"
    backend.mkdir(parents=True)
    (backend / stub.name).symlink_to(stub)
    return folder


@pytest.fixture
def real(repository):
    """Evaluates an expression in a model of a real server; for each test another one."""
    try:
        runtime = ProcessRuntime(find_server())
    except ServerError as error:
        pytest.skip(str(error))
    with runtime.start(repository) as server:
        client = Client(server.url, timeout=60)
        client.load("driver", timeout=120)
        yield lambda code: evaluate(client, code)


@pytest.fixture
def local(repository, monkeypatch):
    monkeypatch.setenv("ENVPACK_CACHE_DIR", str(kept_cache()))
    with local_server(open_project(repository), log=print) as server:
        client = LocalClient(server)
        yield lambda code: evaluate(client, code)


def evaluate(client, code):
    (output,) = client.infer("driver", (Tensor("X", "BYTES", (1,), (code.encode(),)),), binary=True)
    return output.data[0].decode()


# Expressions, in their order.
LOADED = ["load('plain')", "say('plain')"]
CASES = {
    "again": [*LOADED, "load('plain')", "say('plain')"],  # nothing has changed, so it goes on
    "unloaded": [*LOADED, "unload('plain')", "load('plain')", "say('plain')"],
    "configuration": [
        *LOADED,
        f"load('plain', config={given()})",
        "say('plain')",
        "load('plain')",
        "say('plain')",
        "unload('plain')",
        "load('plain')",
        "say('plain')",
    ],
    "version": [f"load('plain', config={given(version_policy={'specific': {'versions': [1]}})})", "say('plain')"],
    "files": [
        *LOADED,
        f"load('plain', config={given()}, files={FILE!r})",
        "say('plain')",
        "load('plain')",
        "say('plain')",
    ],
    "new": [
        f"load('new', config={given()}, files={FILE!r})",
        "say('new')",
        "load('new')",
        "say('new')",
        "unload('new')",
        "load('new')",
        "ready('new')",
    ],
    "other version": [
        f"load('new', config={given()}, files={ {'file:7/model.py': FILE['file:1/model.py']}!r})",
        "say('new')",
    ],
    "wrong configuration": [
        *LOADED,
        "load('plain', config='no JSON')",
        "load('plain', config=json.dumps({'nope': 1}))",
        f"load('plain', config={given(name='other')})",
        f"load('plain', config={given(max_batch_size='many')})",
        "say('plain')",
    ],
    "wrong files": [
        f"load('new', files={FILE!r})",
        f"load('new', config={given()}, files={ {'1/model.py': b''}!r})",
        f"load('new', config={given()}, files={ {'file:../model.py': b''}!r})",
        f"load('new', config={given()}, files={ {'file:model.py': b''}!r})",
        f"load('new', config={given()}, files={ {'file:1/model.py': b'raise ValueError(3)'}!r})",
        "ready('new')",
    ],
    "unknown": ["load('nobody')", f"load('nobody', config={given()})", "ready('nobody')"],
    "the one that fails stays": [
        *LOADED,
        f"load('plain', config={given()}, files={ {'file:1/model.py': b'raise ValueError(3)'}!r})",
        "say('plain')",
    ],
}


@pytest.mark.parametrize("name", CASES)
def test_models_are_loaded_as_on_the_server(name, real, local):
    expected = [real(code) for code in CASES[name]]
    assert [local(code) for code in CASES[name]] == expected


def test_a_changed_file_is_loaded(repository, local):
    assert local("load('plain') or say('plain')") == told("version 2", calls=1)
    source = repository / "plain/2/model.py"
    text = source.read_text()
    try:
        source.write_text(text.replace("version 2", "changed"))
        assert local("load('plain') or say('plain')") == told("changed", calls=1)
    finally:
        source.write_text(text)


def test_a_model_loads_itself_while_it_answers(local):
    config = "json.dumps({**config, 'parameters': {**config['parameters'], 'b': {'string_value': 'x'}}})"
    assert local(f"load('driver', config={config})") == "None"
    assert local("config['parameters']['b']") == "{'string_value': 'x'}"


def test_given_files_are_removed_with_the_model(local, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert local(f"load('new', config={given()}, files={FILE!r})") == "None"
    assert [file.name for file in tmp_path.rglob("*.py")] == ["model.py"]
    local("unload('new')")
    soon(lambda: list(tmp_path.iterdir()) == [])


def told(source, *, calls):
    return repr(json.dumps([source, None, "2", "plain", calls]))
