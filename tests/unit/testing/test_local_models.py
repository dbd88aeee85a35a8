"""What a test sees of a model that runs without a server."""

import numpy as np
import pytest

from envpack.local.starting import Python
from envpack.settings.project import open_project
from envpack.support.errors import InputError
from envpack.testing import ModelError, ModelUnderTest
from envpack.testing.opening import open_models
from tests.unit.local.conftest import CONFIG, DECOUPLED, Repository
from tests.unit.local.test_local_server import COUNT

TWO = CONFIG + 'output [ { name: "REST" data_type: TYPE_INT32 dims: [ -1 ] } ]\n'
MODEL = """
def initialize(arguments, decoupled, instance):
    pass

def execute(requests, stub):
    for _, request in requests:
        seen = len(requests), request.id, request.parameters, request.timeout, request.sequence, request.flags
        stub.log(" ".join(map(str, seen)))
    answers = []
    for _, request in requests:
        (output,) = out(request).outputs
        bad = ints(output.content) == [0]
        answers.append(Response(error="zero") if bad else Response([output, replace(output, name="REST")]))
    return answers
"""


@pytest.fixture
def repository(tmp_path, monkeypatch):
    found = Repository(tmp_path)
    monkeypatch.setattr("envpack.local.running.python_of", lambda *_: Python(found.stub, found.prefix))
    found.folder.mkdir()
    return found


@pytest.fixture
def models(repository):
    found = open_models(open_project(repository.folder), None, timeout=60)
    yield found
    found.close()


@pytest.fixture
def load(models):
    def load(name):
        models.load(name)
        return ModelUnderTest(name, models, models.position())

    return load


def lists(arrays):
    return {name: array.tolist() for name, array in arrays.items()}


def test_inputs_become_arrays_and_outputs_too(repository, load):
    repository.add("m", MODEL, TWO)
    model = load("m")
    assert lists(model.infer(IN=[1, 2])) == {"OUT": [1, 2], "REST": [1, 2]}
    assert lists(model.infer({"IN": np.array([3], np.int32)}, outputs=["REST"])) == {"REST": [3]}
    assert (model.name, model.config["name"], model.config["output"][1]["name"]) == ("m", "m", "REST")
    with pytest.raises(ModelError, match="^zero$") as raised:
        model.infer(IN=[0])
    assert raised.value.text == "zero"
    with pytest.raises(ModelError, match="input 'IN' has the type FP32, and the model takes INT32"):
        model.infer(IN=np.array([1], np.float32))
    with pytest.raises(InputError, match="no array of INT32"):
        model.infer(IN=["word"])


def test_a_request_reaches_the_model_with_all_that_it_says(repository, load, models):
    repository.add("m", MODEL, TWO)
    model = load("m")
    model.infer(IN=[1], id="one", parameters={"a": 1, "b": "é"})
    model.infer(IN=[1], parameters={"timeout": 9, "priority": 2, "a": True})
    model.infer(IN=[1], sequence_id=4, sequence_start=True)
    model.infer(IN=[1], sequence_id="s", sequence_end=True)
    assert model.logs == [
        '1 one {"a":1,"b":"é"} 0 0 0',
        '1  {"a":true} 9 0 0',
        "1  {} 0 4 1",
        "1  {} 0 s 2",
    ]
    later = ModelUnderTest("m", models, models.position())
    assert later.logs == []
    model.infer(IN=[1])
    assert later.logs == ["1  {} 0 0 0"]
    assert ModelUnderTest("other", models, 0).logs == []


def test_the_logs_are_those_of_the_model_as_on_a_server_that_is_not_verbose(repository, load):
    logging = MODEL.replace(
        "answers = []",
        """answers = []
    stub.log('envpack-stub {"instance": "m_0_0"}', 3, "")
    stub.log("Failed to process the request(s)", 2, "")
    stub.log("in detail", 3)
    stub.log("careful", 1)""",
    )
    repository.add("m", logging, TWO)
    model = load("m")
    model.infer(IN=[1])
    assert model.logs == ["1  {} 0 0 0", "careful"]


def test_requests_of_one_call_are_executed_together_if_the_configuration_says_so(repository, load):
    repository.add("alone", MODEL, TWO)
    alone = load("alone")
    alone.infer_batch([{"IN": [1]}, {"IN": [2]}])
    assert [line.split()[0] for line in alone.logs] == ["1", "1"]
    repository.add("m", MODEL, "max_batch_size: 4 dynamic_batching { }" + TWO)
    model = load("m")
    answers = model.infer_batch([{"IN": [[1]]}, model.request(IN=[[2]], id="x")])
    assert [lists(answer)["OUT"] for answer in answers] == [[1], [2]]
    assert [line.split()[0] for line in model.logs] == ["2", "2"]
    assert model.infer_batch([]) == []
    with pytest.raises(ModelError, match="^zero$"):
        model.infer_batch([{"IN": [[1]]}, {"IN": [[0]]}])
    first, second = model.infer_batch([{"IN": [[1]]}, {"IN": [[0]]}], return_errors=True)
    assert (lists(first)["OUT"], second.text) == ([1], "zero")
    with pytest.raises(ModelError, match="no output 'NONE'"):
        model.infer_batch([model.request(IN=[[1]], outputs=["NONE"])])


def test_a_decoupled_model_streams(repository, load):
    repository.add("m", COUNT, CONFIG + DECOUPLED)
    model = load("m")
    assert [lists(found) for found in model.stream(IN=[2])] == [{"OUT": [0]}, {"OUT": [1]}]
    text = r"the model is decoupled, so its responses come by stream\(\), on a server too"
    for use in (lambda: model.infer(IN=[1]), lambda: model.infer_batch([{"IN": [1]}])):
        with pytest.raises(ModelError, match=f"^{text}$"):
            use()
    with pytest.raises(ModelError, match="no output 'NONE'"):
        list(model.stream(IN=[1], outputs=["NONE"]))
    repository.add("fails", "def execute(*_):\n    raise ValueError('boom')\n")
    with pytest.raises(ModelError, match="^boom$"):
        list(load("fails").stream(IN=[1]))


def test_a_model_may_send_its_response_before_it_says_that_it_was_the_last(repository, load):
    send = "def execute(requests, stub):\n    stub.send(requests[0][0], out(requests[0][1]))\n"
    end = "    stub.send(requests[0][0], last=True)\n    return [0]\n"
    repository.add("m", send + end)
    repository.add("none", f"def execute(requests, stub):\n{end}")
    (answer,) = load("m").infer_batch([{"IN": [1]}])
    assert lists(answer) == lists(load("m").infer(IN=[1])) == {"OUT": [1]}
    model = load("none")
    (answer,) = model.infer_batch([{"IN": [1]}], return_errors=True)
    assert answer.text == "expected a single response, got 0"
    with pytest.raises(ModelError, match="^expected a single response, got 0$"):
        model.infer(IN=[1])


def test_a_load_that_fails_for_a_known_reason_has_the_fix_that_a_server_has(repository, load):
    repository.add("m", "raise ValueError(\"module '1.model' has no attribute 'TritonPythonModel'\")\n")
    with pytest.raises(ModelError) as raised:
        load("m")
    assert raised.value.fix.startswith("define a class TritonPythonModel in model.py")


def test_a_model_that_cannot_be_loaded_is_an_error(repository, load, models):
    repository.add("m", "raise ValueError('wrong')")
    with pytest.raises(ModelError, match="^wrong$"):
        load("m")
    repository.add("m", MODEL, TWO)
    models.forget("m")
    assert lists(load("m").infer(IN=[4]))["OUT"] == [4]
