"""Models without samples: what they read is found out, a model that refuses all that was made up needs a sample, and as
many items are sent at once as it declares.
"""

import pytest

from envpack.server.choice import ServerSpec
from envpack.settings.table import Settings
from envpack.verification.run import verify

pytestmark = pytest.mark.thorough

_MODEL = """import asyncio, base64, io, json, wave

import numpy as np
import triton_python_backend_utils as pb_utils
from PIL import Image


def answer(given, of, requests):
{answer}

async def runs_again():
    asyncio.run(runs_again())

class TritonPythonModel:
    def execute(self, requests):
        responses, last = [], None
        for request in requests:
            tensors = request.inputs()
            arrays = [tensor.as_numpy() for tensor in tensors]
            last = np.atleast_2d(np.array(answer(arrays[0].flatten()[0] if arrays[0].dtype == object else arrays[0],
                                                 arrays, requests), np.float32))
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", last)]))
{end}
        return responses
"""
_CONFIG = """backend: "python"
max_batch_size: 8
input [ {inputs} ]
output [ {{ name: "OUT" data_type: TYPE_FP32 dims: [ {outputs} ] }} ]
parameters {{ key: "EXECUTION_ENV_PATH" value {{ string_value: "{environment}" }} }}
"""
_LAST_FOR_ALL = """        responses = [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", last)]) for _ in requests]"""
STRING = ("TYPE_STRING", "1")
# By model: what it does with its input, types and dimensions of its inputs, and how they were filled when it answered.
ACCEPTED = {
    "number_in_text": ("float(given)", [STRING], ""),
    "json": ("len(json.loads(given)['text'])", [STRING], "JSON in IN0"),
    "image": ("np.asarray(Image.open(io.BytesIO(given)).convert('RGB')).mean()", [STRING], "PNG in IN0"),
    "jpeg": ("Image.open(io.BytesIO(given), formats=['JPEG']).getpixel((9, 40))[0]", [STRING], "JPEG in IN0"),
    "base64": (
        "Image.open(io.BytesIO(base64.b64decode(given, validate=True))).width",
        [STRING],
        "PNG in base64 in IN0",
    ),
    "sound": ("wave.open(io.BytesIO(given)).getnframes()", [STRING], "WAV in IN0"),
    "bytes": ("Image.open(io.BytesIO(given.tobytes())).width", [("TYPE_UINT8", "-1")], "PNG in IN0"),
    "question": (
        "Image.open(io.BytesIO(given)).width + len(of[1].flatten()[0].decode())",
        [STRING, STRING],
        "PNG in IN0",
    ),
    "pixels": ("given[0, 100:, 100:].reshape(-1, 3)[0]", [("TYPE_FP32", "-1, -1, 3")], "variable dimensions of 224"),
    "token": ("[7][given.flatten()[0]]", [("TYPE_INT64", "1")], "zeros"),
}
FAULTY = {
    "forgot_import": ("np.mean(scipy.zeros(1))", [STRING]),
    "ends": ("__import__('os')._exit(3)", [STRING]),
    "file_of_its_own": ("len(open('/srv/weights/words.txt').read())", [STRING]),
    "file_of_numpy": ("np.loadtxt('/srv/weights/words.csv')", [STRING]),
    "list_for_an_array": ("pb_utils.Tensor('OUT', [1.0])", [STRING]),
    "other_attribute": ("requests[0].inputs()[0].numpy()", [STRING]),
    "other_name": ("pb_utils.get_input_tensor_by_name(requests[0], 'IMAGE').as_numpy()", [STRING]),
    "no_list": ("pb_utils.InferenceResponse(requests[0].inputs()[0])", [STRING]),
    "all_requests": ("pb_utils.get_input_tensor_by_name(requests, 'IN0').as_numpy()", [STRING]),
    "debugger": ("__import__('pdb').set_trace()", [STRING]),
    "terminal": ("input('next?')", [STRING]),
    "loop": ("asyncio.run(runs_again())", [STRING]),
}


@pytest.fixture(scope="module")
def verdicts(environment, tmp_path_factory):
    """The verdict on every model, by name; one server for all."""
    repository = tmp_path_factory.mktemp("repository")

    def write(name, expression, inputs, *, config="", end="", outputs="-1", statement="return "):
        (repository / name / "1").mkdir(parents=True)
        written = [
            f'{{ name: "IN{number}" data_type: {kind} dims: [ {dims} ] }}' for number, (kind, dims) in enumerate(inputs)
        ]
        text = _CONFIG.format(inputs=", ".join(written), environment=environment, outputs=outputs)
        (repository / name / "config.pbtxt").write_text(text + config)
        code = _MODEL.format(answer=f"    {statement}{expression}\n", end=end)
        (repository / name / "1/model.py").write_text(code)

    for name, (expression, inputs, _) in ACCEPTED.items():
        write(name, expression, inputs)
    for name, (expression, inputs) in FAULTY.items():
        write(name, expression, inputs)
    write("names_a_file", "len(open('/srv/' + given.decode()).read())", [STRING])
    asked = "model_name='picky', inputs=requests[0].inputs(), requested_output_names=['OUT']"
    asking = f"pb_utils.get_output_tensor_by_name(pb_utils.InferenceRequest({asked}).exec(), 'OUT').as_numpy()"
    write("asks_picky", asking, [STRING])
    write("picky", "ValueError('no such customer')", [STRING], statement="raise ")
    batches = "dynamic_batching { max_queue_delay_microseconds: 20000 }\n"
    blue = "np.asarray(Image.open(io.BytesIO(given)))[..., 2].mean()"
    write("images", blue, [STRING], config=batches)
    write("images_mixed_up", blue, [STRING], config=batches, end=_LAST_FOR_ALL)
    write("other_shape", "np.ones((len(given), 2, 2))", [("TYPE_FP32", "2")], outputs="4")
    write("nothing_found", "np.ones((len(given), 0))", [("TYPE_FP32", "2")])
    write("for_six", "given / (given.shape[0] <= 6 or {}[given.shape[0]])", [("TYPE_FP32", "2")])
    write("for_eight", "given / (given.shape[0] <= 8 or {}[given.shape[0]])", [("TYPE_FP32", "2")])
    write("ascii_text", "len(given.decode('ascii'))", [STRING])
    write("for_one_number", "[float(row) for row in given]", [("TYPE_FP32", "-1")])
    found = verify(repository, spec=ServerSpec(Settings(runtime="process")))
    assert found.answer == "no"
    return {model.name: model for model in found.models}


def check(verdict, name):
    return next((check for check in verdict.checks if check.id == name), None)


@pytest.mark.parametrize("name", ACCEPTED)
def test_what_a_model_reads_is_found_and_named(verdicts, name):
    verdict, filling = verdicts[name], ACCEPTED[name][2]
    assert (verdict.ok, verdict.complete) == (True, True), verdict.failure or verdict.checks
    sent = "with every input" + (f" ({filling})" if filling else "")
    assert f"sent {sent}" in check(verdict, "infer").evidence


def test_a_model_that_refuses_everything_needs_a_sample(verdicts):
    verdict = verdicts["picky"]
    assert (verdict.ok, verdict.complete) == (True, False)
    infer = check(verdict, "infer")
    assert infer.status == "unchecked"
    refused = "loads; needs a sample, since it refuses generated inputs: ValueError: no such customer, at "
    assert infer.evidence.startswith(refused)
    assert infer.evidence.endswith("/picky/1/model.py:9 in answer")
    assert infer.fix == "record a sample: envpack run picky -i FILE --save-sample"


def test_a_tensor_that_a_refused_request_does_not_return_is_no_fault_of_the_caller(verdicts):
    verdict = verdicts["asks_picky"]
    assert (verdict.ok, verdict.complete) == (True, False)
    infer = check(verdict, "infer")
    assert "'NoneType' object has no attribute 'as_numpy'" in infer.evidence
    assert "where response.has_error(); or record a sample" in infer.fix


def test_a_file_that_the_input_names_is_none_of_the_model(verdicts):
    verdict = verdicts["names_a_file"]
    assert (verdict.ok, verdict.complete) == (True, False)
    assert "No such file or directory: '/srv/1'" in check(verdict, "infer").evidence


def test_a_file_that_is_missing_whatever_is_sent_is_named(verdicts):
    failure = verdicts["file_of_its_own"].failure
    assert (failure.kind, "/srv/weights/words.txt" in failure.reason) == ("inference-failed", True)
    assert "put the file there" in failure.fix


@pytest.mark.parametrize("name", FAULTY)
def test_what_no_input_would_mend_is_a_fault_of_the_model(verdicts, name):
    assert not verdicts[name].ok


def test_images_are_sent_at_once_and_told_apart(verdicts):
    assert verdicts["images"].ok, verdicts["images"].failure
    assert check(verdicts["images"], "concurrency").status == "ok"
    assert verdicts["images_mixed_up"].failure.kind == "wrong-together"


def test_what_the_server_sends_all_the_same_is_a_warning(verdicts):
    assert verdicts["other_shape"].ok
    evidence = check(verdicts["other_shape"], "shape").evidence
    assert evidence.startswith("the output OUT has the shape [1, 2, 2], not [-1, 4]: the server sends it")
    assert verdicts["nothing_found"].ok
    assert check(verdicts["nothing_found"], "shape") is None


def test_as_many_items_as_the_model_declares_are_sent_in_one_request(verdicts):
    assert verdicts["for_eight"].ok
    assert check(verdicts["for_eight"], "infer").evidence.endswith(
        "with two items in one request, with 8 items in one request"
    )
    failure = verdicts["for_six"].failure
    assert failure.reason == "sent with 8 items in one request: KeyError: 8"
    assert failure.fix.endswith("or set max_batch_size to the number of items that it takes")


def test_inputs_of_open_length_are_sent_with_several_elements_too(verdicts):
    assert verdicts["for_one_number"].ok
    refused = check(verdicts["for_one_number"], "lengths")
    assert refused.status == "warning"
    assert "(variable dimensions of 3): TypeError: only " in refused.evidence
    assert "lengths" not in {check.id for name in ("pixels", "bytes") for check in verdicts[name].checks}


def test_text_of_other_languages_is_sent_too(verdicts):
    assert verdicts["ascii_text"].ok
    refused = check(verdicts["ascii_text"], "text")
    assert (refused.status, "UnicodeDecodeError: 'ascii' codec" in refused.evidence) == ("warning", True)
    assert [name for name, verdict in verdicts.items() if check(verdict, "text")] == ["ascii_text"]
