"""Small broken models, each with what envpack must say about it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

CONFIG = """backend: "python"
max_batch_size: 4
input [ { name: "IN" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "OUT" data_type: TYPE_FP32 dims: [ -1 ] } ]
"""
DOUBLE = """import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            data = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()
            answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", data * 2)]))
        return answers
"""
COUNT = """import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            for number in range(int(pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()[0, 0])):
                sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([[number]], np.float32))]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""
_INITIALIZE = """class TritonPythonModel:
    def initialize(self, args):
        {}

    def execute(self, requests):
        return []
"""
_EXECUTE = DOUBLE.replace("        answers = []\n", "        {}\n        answers = []\n")


@dataclass(frozen=True)
class Broken:
    """One broken model.

    Attributes:
        name: folder of the model.
        code: its model.py.
        kind: kind of the failure that must be reported.
        says: what the reason must contain.
        details: what one of the details must contain.
        config: what its configuration has besides tensors.
        files: further files, by path in the model's folder.
    """

    name: str
    code: str
    kind: str
    says: str
    details: str = ""
    config: str = ""
    files: dict[str, str] = field(default_factory=dict)


FAULTS = (
    Broken(
        "raises",
        _INITIALIZE.format('raise ValueError("boom")'),
        "load-failed",
        "ValueError: boom",
        "model.py:3 in initialize",
    ),
    Broken("wants_module", "import not_installed\n" + DOUBLE, "module-missing", "No module named 'not_installed'"),
    Broken(
        "exits", 'import os\nprint("going away", flush=True)\nos._exit(3)\n', "stub-died", "process ended", "going away"
    ),
    Broken(
        "forgot_attribute", _EXECUTE.format("self.net(requests)"), "inference-failed", "object has no attribute 'net'"
    ),
    Broken(
        "crashes_starting",
        _INITIALIZE.format('print("starting", flush=True); __import__("os")._exit(4)'),
        "stub-died",
        "is not healthy",
        "starting",
    ),
    Broken("crashes_answering", _EXECUTE.format('__import__("os").abort()'), "stub-died", "is not healthy"),
    Broken("wrong_name", DOUBLE.replace('"OUT"', '"RESULT"'), "bad-output", "output OUT is missing"),
    Broken("wrong_type", DOUBLE.replace("data * 2", "data.astype('int32')"), "bad-output", "OUT is INT32, not FP32"),
    Broken(
        "answers_the_first_item",
        DOUBLE.replace("data * 2", "data[:1].repeat(len(data), axis=0) * 2"),
        "mixed-items",
        "sent with two different items in one request: item 2 has another answer than alone: OUT element 0 is 2 instead"
        " of 4, as another item",
    ),
    Broken(
        "answers_few_items",
        DOUBLE.replace("data * 2", "data * data.dtype.type([[2], [2], [2], [0]])[: len(data)]"),
        "mixed-items",
        "sent with 4 items in one request: item 4 has another answer than alone: OUT element 0 is 0 instead of 4",
    ),
    Broken(
        "wrong_answer",
        DOUBLE,
        "wrong-answers",
        "1 of 2 numbers right, 2 needed",
        files={
            "envpack/smoke.json": '{"data": [{"IN": [1]}, {"IN": [2]}],'
            ' "validation_data": [{"OUT": [2]}, {"OUT": [5]}],'
            ' "envpack": {"noun": "numbers"}}'
        },
    ),
    Broken(
        "wrong_later",
        DOUBLE.replace("data * 2", "data * data.dtype.type(COUNT.pop() if COUNT else 3)") + "COUNT = [2] * 9\n",
        "wrong-answers",
        "after more requests, the answer to the same one is another: OUT element 0 is 3 instead of 2",
        files={"envpack/smoke.json": '{"data": [{"IN": [1]}], "validation_data": [{"OUT": [2]}]}'},
    ),
    Broken(
        "wrong_stream",
        COUNT,
        "wrong-answers",
        "2 of 3 samples right, 3 needed, 1 without expected outputs (3: 1 response instead of 2)",
        config="model_transaction_policy { decoupled: true }\n",
        files={
            "envpack/smoke.json": '{"data": [{"IN": [2]}, {"IN": [0]}, {"IN": [1]}, {"IN": [1]}], "validation_data":'
            ' [[{"OUT": [0]}, {"OUT": [1]}], [], {}, [{"OUT": [0]}, {"OUT": [1]}]]}'
        },
    ),
    Broken("bad_samples", DOUBLE, "bad-samples", "data is empty", files={"envpack/smoke.json": '{"data": []}'}),
)
HANGS = Broken(
    "hangs",
    _INITIALIZE.format('print("asleep", flush=True); __import__("time").sleep(1000)'),
    "load-timeout",
    "not loaded after",
    "asleep",
)
GOOD = Broken(
    "good",
    DOUBLE,
    "",
    "",
    files={
        "envpack/smoke.json": '{"data": [{"IN": [1, 2]}, {"IN": [3]}],'
        ' "validation_data": [{"OUT": [2, 4]}, {"OUT": [7]}],'
        ' "envpack": {"minimum_match": 0.5, "noun": "numbers"}}'
    },
)
ENSEMBLE = """platform: "ensemble"
max_batch_size: 4
input [ { name: "IN" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "OUT" data_type: TYPE_FP32 dims: [ -1 ] } ]
ensemble_scheduling { step [ {
  model_name: "good" model_version: -1
  input_map { key: "IN" value: "IN" }
  output_map { key: "OUT" value: "OUT" }
} ] }
"""


def write_model(repository: Path, broken: Broken, environment: Path) -> Path:
    """Write one model that runs in ``environment``; returns its folder."""
    folder = repository / broken.name
    parameter = f'parameters {{ key: "EXECUTION_ENV_PATH" value {{ string_value: "{environment}" }} }}\n'
    for name, text in {
        "config.pbtxt": CONFIG + broken.config + parameter,
        "1/model.py": broken.code,
        **broken.files,
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder
