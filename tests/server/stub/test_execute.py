"""What execute may return and raise, and what the client receives; the facts of a request."""

import json
import re
import threading

import pytest

from envpack.server.kserve import RequestError
from envpack.server.tensors import Tensor

PREFIX = "Failed to process the request(s) for model 'script_0', message: "
CODES = {
    "UNKNOWN": 400,
    "INTERNAL": 500,
    "NOT_FOUND": 404,
    "INVALID_ARG": 400,
    "UNAVAILABLE": 503,
    "UNSUPPORTED": 501,
    "ALREADY_EXISTS": 400,
    "CANCELLED": 400,
}


def code_request(code, **fields):
    return {"inputs": [{"name": "CODE", "datatype": "BYTES", "shape": [1], "data": [code]}], **fields}


def test_only_the_outputs_asked_for_are_sent(served):
    code = (
        "kinds = [pb_utils.Tensor(name, np.array([name], dtype=object)) for name in ('OUT', 'OTHER')]\n"
        "self.requested = sorted(request.requested_output_names())\n"
        "self.response = pb_utils.InferenceResponse(kinds)\n"
        "return [self.response]"
    )
    assert set(served.run(code)) == {"OUT", "OTHER"}
    answer = served.post("script", code_request(code, outputs=[{"name": "OTHER"}]))
    assert [(output["name"], output["data"]) for output in answer["outputs"]] == [("OTHER", ["OTHER"])]
    assert served.evaluate("self.requested") == ["OTHER"]
    assert served.evaluate("[tensor.name() for tensor in self.response.output_tensors()]") == ["OTHER"]


def test_requests_of_a_batch_are_answered_one_by_one(served):
    answers = {}

    def send(number):
        try:
            answers[number] = served.client.infer("batches", [Tensor("IN", "INT64", (1, 2), (number, 2))])
        except RequestError as error:
            answers[number] = error

    threads = [threading.Thread(target=send, args=(number,)) for number in (-1, 0, 1, 2, 3, 4, 5, 100)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    refused = answers.pop(-1)
    assert (refused.message, refused.status) == ("negative", CODES["INVALID_ARG"])
    assert "nothing can answer any more. Return a list" in answers.pop(100).message
    assert {number: outputs[0].data for number, outputs in answers.items()} == {n: (2 * n, 4) for n in range(6)}
    assert max(outputs[1].data[0] for outputs in answers.values()) > 1


@pytest.mark.parametrize("code", CODES)
def test_an_error_response_has_its_code(served, code):
    error = f"pb_utils.TritonError('größe', pb_utils.TritonError.{code})"
    refusal = served.refusal(f"return [respond(np.zeros(1), error={error})]")
    assert (refusal.message, refusal.status) == ("größe", CODES[code])


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("raise ValueError('boom')", "ValueError: boom"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("sys.exit('over')", "SystemExit: over"),
        ("raise KeyboardInterrupt()", "KeyboardInterrupt: <EMPTY MESSAGE>"),
        ("raise pb_utils.TritonModelException('mine')", "TritonModelException: mine"),
        ("return [undefined]", "NameError: name 'undefined' is not defined"),
        ("return [pb_utils.Tensor('', np.zeros(1))]", "TritonModelException: Tensor name cannot be an empty string."),
    ],
)
def test_an_exception_is_reported_with_its_place(served, code, message):
    refusal = served.refusal(code)
    first, _, frames = refusal.message.partition("\n\nAt:\n")
    assert first == PREFIX + message
    assert re.search(r"  \S+/script/1/model\.py\(\d+\): execute\n", frames)
    assert refusal.status == 500
    assert served.evaluate("1 + 1") == 2


WRONG_LENGTH = (
    "Number of InferenceResponse objects do not match the number of InferenceRequest objects. "
    "InferenceRequest(s) size is:1, and InferenceResponse(s) size is:"
)
WRONG_ITEM = "Expected an 'InferenceResponse' object in the execute function return list, found type "


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ("(1, 2)", "Expected a list in the execute return, found type '<class 'tuple'>'."),
        ("7", "Expected a list in the execute return, found type '<class 'int'>'."),
        ("(r for r in requests)", "Expected a list in the execute return, found type '<class 'generator'>'."),
        ("[reply(1), reply(2)]", WRONG_LENGTH + "2\n"),
        ("[]", WRONG_LENGTH + "0\n"),
        ("['text']", WRONG_ITEM + "'<class 'str'>'."),
        ("[request]", WRONG_ITEM + "'<class 'c_python_backend_utils.InferenceRequest'>'."),
    ],
)
def test_a_wrong_return_value_is_reported(served, returned, message):
    assert served.refusal(f"return {returned}").message == PREFIX + message


def test_a_list_of_another_class_is_a_list(served):
    code = "class Mine(list):\n    pass\nreturn Mine([reply(5)])"
    assert served.run(code)["OUT"].data == (b"5",)


def test_a_response_of_a_derived_class_is_a_response(served):
    code = (
        "class Mine(pb_utils.InferenceResponse):\n    pass\n"
        "return [Mine([pb_utils.Tensor('OUT', np.array([b'x'], dtype=object))])]"
    )
    assert served.run(code)["OUT"].data == (b"x",)


def test_a_model_without_execute_loads_and_says_so(served):
    with pytest.raises(RequestError, match="does not implement `execute` method"):
        served.client.infer("executeless", [Tensor("IN", "FP32", (1,), (1.0,))])


def test_a_request_tells_what_the_client_said(served):
    code = (
        "return [reply([request.request_id(), request.correlation_id(), request.flags(), request.timeout(),\n"
        "              json.loads(request.parameters()), request.trace().get_context()])]"
    )
    parameters = {
        "sequence_id": 42,
        "sequence_start": True,
        "sequence_end": True,
        "timeout": 1234567,
        "whole": -3,
        "yes": True,
        "text": "größe",
        "half": 0.5,
    }
    answer = served.post("script", code_request(code, id="request 7", parameters=parameters))
    assert answer["id"] == "request 7"
    facts = ["request 7", 42, 3, 1234567, {"whole": -3, "yes": True, "text": "größe", "half": 0.5}, None]
    assert answer["outputs"][0]["data"] == [json.dumps(facts)]


def test_a_correlation_id_may_be_text(served):
    code = "return [reply([request.correlation_id(), request.flags()])]"
    answer = served.post("script", code_request(code, parameters={"sequence_id": "of größe"}))
    assert answer["outputs"][0]["data"] == [r'["of gr\u00f6\u00dfe", 0]']


def test_a_request_that_says_nothing(served):
    expression = (
        "[request.request_id(), request.correlation_id(), request.flags(), request.timeout(), request.parameters(), "
        "sorted(request.requested_output_names())]"
    )
    assert served.evaluate(expression) == ["", 0, 0, 0, "{}", ["OTHER", "OUT"]]


def test_flags_can_be_set(served):
    assert served.evaluate("[request.set_flags(2), request.flags()]") == [None, 2]
