"""Models that take every kind of request are sent each: all datatypes, streams, sequences, optional inputs."""

import pytest

from envpack.server.choice import ServerSpec
from envpack.settings.table import Settings
from envpack.verification.run import verify
from tests.verdicts import of

TYPES = """backend: "python"
input [
  { name: "HALF" data_type: TYPE_FP16 dims: [ 2 ] }, { name: "TEXT" data_type: TYPE_STRING dims: [ -1 ] },
  { name: "FLAG" data_type: TYPE_BOOL dims: [ 1 ] }, { name: "BIG" data_type: TYPE_UINT64 dims: [ 1, 1 ] }
]
output [
  { name: "HALF_OUT" data_type: TYPE_FP16 dims: [ 2 ] }, { name: "TEXT_OUT" data_type: TYPE_STRING dims: [ -1 ] },
  { name: "FLAG_OUT" data_type: TYPE_BOOL dims: [ 1 ] }, { name: "BIG_OUT" data_type: TYPE_UINT64 dims: [ 1, 1 ] }
]
"""
ECHO = """import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [
            pb_utils.InferenceResponse([pb_utils.Tensor(t.name() + "_OUT", t.as_numpy()) for t in request.inputs()])
            for request in requests
        ]
"""
STREAM = """import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            data = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()
            for factor in range(1, 4):
                sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", data * factor)]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""
SUM_OF_SEQUENCE = """import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.totals = {}

    def execute(self, requests):
        answers = []
        for request in requests:
            sequence = request.correlation_id()
            starts = pb_utils.get_input_tensor_by_name(request, "START").as_numpy().any()
            before = 0 if starts else self.totals.get(sequence, 0)  # an empty slot has the sequence 0
            self.totals[sequence] = before + pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()
            answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", self.totals[sequence])]))
        return answers
"""
SEQUENCE = """sequence_batching { control_input [ {
  name: "START"
  control [ { kind: CONTROL_SEQUENCE_START fp32_false_true: [ 0, 1 ] } ]
} ] }
"""
AFTER_THE_START = """import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceResponse(list(self.outputs(request))) for request in requests]

    def outputs(self, request):
        if not pb_utils.get_input_tensor_by_name(request, "START").as_numpy().any():
            yield pb_utils.Tensor("OUT", pb_utils.get_input_tensor_by_name(request, "IN").as_numpy())
"""
WITH_OPTION = """import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            data = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()
            factor = pb_utils.get_input_tensor_by_name(request, "FACTOR")
            answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", data * (factor.as_numpy()))]))
        return answers
"""


@pytest.fixture(scope="module")
def kinds(environment, faults, tmp_path_factory):
    """One model for every kind of request."""
    repository = tmp_path_factory.mktemp("kinds")

    def write(name, code, config="", **files):
        folder = faults.write_model(repository, faults.Broken(name, code, "", "", files=files), environment)
        text = (folder / "config.pbtxt").read_text()
        (folder / "config.pbtxt").write_text(text + config)
        return folder

    parameter = f'parameters {{ key: "EXECUTION_ENV_PATH" value {{ string_value: "{environment}" }} }}\n'
    (write("types", ECHO) / "config.pbtxt").write_text(TYPES + parameter)
    write("decoupled", STREAM, "model_transaction_policy { decoupled: true }\n")
    two_sequences = (
        '{"data": [[{"IN": [1]}, {"IN": [2]}], [{"IN": [5]}, {"IN": [7]}]],'
        ' "validation_data": [[{"OUT": [1]}, {"OUT": [3]}], [{"OUT": [5]}, {"OUT": [12]}]]}'
    )
    write("sequence", SUM_OF_SEQUENCE, SEQUENCE, **{"envpack/smoke.json": two_sequences})
    after = '{"data": [[{"IN": [1]}, {"IN": [2]}]], "validation_data": [[{}, {"OUT": [2]}]]}'
    write("after_the_start", AFTER_THE_START, SEQUENCE)
    write("after_the_start_sampled", AFTER_THE_START, SEQUENCE, **{"envpack/smoke.json": after})
    option = 'input [ { name: "FACTOR" data_type: TYPE_FP32 dims: [ 1 ] optional: true } ]\n'
    write("needs_option", WITH_OPTION, option)
    write("has_option", WITH_OPTION.replace("(factor.as_numpy())", "(factor.as_numpy() if factor else 2)"), option)
    return verify(repository, spec=ServerSpec(Settings(runtime="process")))


def infer_check(verdict, name):
    return next(check for check in of(verdict, name).checks if check.id == "infer")


@pytest.mark.thorough
def test_every_datatype_is_sent_and_read_back(kinds):
    assert "HALF_OUT FP16[2], TEXT_OUT BYTES[1], FLAG_OUT BOOL[1], BIG_OUT UINT64[1, 1]" in (
        infer_check(kinds, "types").evidence
    )


def test_requests_to_a_decoupled_model_use_the_stream(kinds):
    assert infer_check(kinds, "decoupled").status == "ok"
    assert "streamed 3 responses" in infer_check(kinds, "decoupled").evidence


def test_sequences_of_samples_are_sent_as_sequences(kinds):
    model = of(kinds, "sequence")
    assert model.ok, model.failure
    assert (model.samples.right, model.samples.sent) == (4, 4)


def test_a_start_without_outputs_needs_a_sample_of_what_follows(kinds):
    check = infer_check(kinds, "after_the_start")
    assert (check.status, of(kinds, "after_the_start").failure) == ("unchecked", None)
    assert check.fix.endswith("with their expected outputs: after_the_start/envpack/smoke.json")
    sampled = of(kinds, "after_the_start_sampled")
    assert (sampled.ok, sampled.samples.right) == (True, 1)
    assert infer_check(kinds, "after_the_start_sampled").status == "ok"


def test_a_request_without_optional_inputs_is_sent(kinds):
    assert "without the optional inputs" in infer_check(kinds, "has_option").evidence
    assert of(kinds, "needs_option").failure.kind == "inference-failed"
