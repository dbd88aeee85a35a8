"""Answers to several requests that are compared: as JSON and as binary data, and with other inputs."""

import itertools
from dataclasses import replace

import pytest

from envpack.server.kserve import RequestError
from envpack.server.tensors import Tensor, read_served_config
from envpack.verification import answers as module_of_answers
from envpack.verification.answers import LoadedModel
from envpack.verification.checks.compared import (
    answer_to_other,
    check_constant,
    check_formats,
    check_lengths,
    check_optional,
    check_outputs,
    check_text,
)
from envpack.verification.requests import SmokeRequest
from tests.tables import every_row
from tests.unit.verification.responses import CONFIG, REQUEST, SERVED, Client, output


class Instances:
    """A model with instances that answer in turn, each with its own number."""

    def __init__(self, count):
        self._numbers = itertools.cycle(range(count))

    def infer(self, model, inputs, *, binary=None, parameters=None):
        return output(float(next(self._numbers)))


def formats(*responses, as_json, config=CONFIG, request=REQUEST):
    return check_formats(LoadedModel(Client(*responses, as_json=as_json), "m", config), request)


@pytest.mark.parametrize(
    ("as_json", "difference"),
    [
        (output(1.0, 2.01), "OUT element 1 is 2.01 instead of 2"),
        (output(1.0, 2.00001), "OUT element 1 is 2.00001 instead of 2"),
        (output(1e-8, 2.0), "OUT element 0 is 1e-08 instead of 1"),
        (output(1.0), "OUT 1 elements instead of 2"),
        (output(1.0, 2.0, name="OTHER"), "OUT is missing"),
        (output(1, 2, datatype="INT32"), "OUT type INT32 instead of FP32"),
    ],
)
def test_another_response_to_json_is_a_fault(as_json, difference):
    check = formats(output(1.0, 2.0), as_json=as_json)
    assert (check.id, check.status, check.evidence) == ("formats", "failed", f"as JSON, {difference}")
    assert check.fix


def test_json_may_round_the_last_digits_of_a_float():
    assert formats(output(1.0, 2.0), as_json=output(1.0000001, 2.0000001)).status == "ok"
    assert formats(output(0.0), as_json=output(1e-10)).status == "ok"
    assert formats(output(0.0), as_json=output(1e-8)).status == "failed"


def test_a_model_that_never_answers_the_same_is_not_compared():
    check = formats(output(1.0), output(2.0), as_json=output(3.0))
    assert check.status == "skipped"
    assert check.evidence == "not compared: equal requests have different responses: OUT element 0 is 2 instead of 1"


@pytest.mark.parametrize("instances", range(2, 9))
def test_a_model_whose_instances_answer_differently_is_not_compared(instances):
    """A server sends one request after the other to the instances in turn."""
    check = check_formats(LoadedModel(Instances(instances), "m", CONFIG), REQUEST)
    assert check.status == "skipped"
    assert "equal requests have different responses" in check.evidence


@pytest.mark.parametrize("side", ["input", "output"])
def test_types_without_a_json_form_are_not_compared(side):
    served = {**SERVED, side: [{"name": "X", "data_type": "TYPE_FP16", "dims": [2]}]}
    assert formats(output(1.0), as_json=output(2.0), config=read_served_config(served)) is None


def test_bytes_that_are_no_text_are_not_compared():
    request = SmokeRequest("", (Tensor("IN", "BYTES", (1,), (b"\xff",)),))
    assert formats(output(1.0), as_json=output(2.0), request=request) is None
    assert formats(output(b"\xff", datatype="BYTES"), as_json=output(b"x", datatype="BYTES")) is None


def test_every_request_has_the_parameters_of_its_sequence():
    client = Client(output(1.0), output(1.0), as_json=output(2.0))
    check_formats(LoadedModel(client, "m", CONFIG), REQUEST)
    assert [sent[2] for sent in client.sent] == [True, False, *[False] * 8, *[True] * 8]
    assert {(sent[0], sent[1], sent[3]["sequence_id"]) for sent in client.sent} == {("m", REQUEST.inputs, 1)}


# The answers to two different requests, and whether the output is said to be the same.
PAIRS = {
    "equal numbers": (output(1.0), output(1.0), True),
    "other numbers": (output(1.0), output(2.0), False),
    "one of two": (output(1.0) + output(1.0, name="B"), output(2.0) + output(1.0, name="B"), True),
    "equal labels": (output(b"cat", datatype="BYTES"), output(b"cat", datatype="BYTES"), False),
    "nothing": (output(), output(), False),
}


@every_row("name", PAIRS)
def test_numbers_that_are_the_same_for_different_inputs_are_a_warning(name):
    first, second, warned = PAIRS[name]
    check = check_constant(LoadedModel(Client(), "m", CONFIG), REQUEST, ((first,), (second,)))
    assert (check is not None and check.status == "warning") is warned


def test_another_request_must_be_answered_as_declared_too():
    answers = (output(1.0),), (output(2.0, datatype="FP64"),)
    check = check_constant(LoadedModel(Client(), "m", CONFIG), replace(REQUEST, description="with 2"), answers)
    assert (check.id, check.status) == ("infer", "failed")
    assert check.evidence == "sent with 2: the output OUT is FP64, not FP32"


def test_a_model_may_refuse_another_request():
    assert answer_to_other(LoadedModel(Client("no such input"), "m", CONFIG), REQUEST) is None


def test_an_answer_that_does_not_come_is_no_refusal():
    client = Client()
    client.infer = unanswered
    with pytest.raises(RequestError, match="late"):
        answer_to_other(LoadedModel(client, "m", CONFIG), REQUEST)


def unanswered(*_, **__):
    raise RequestError("late", timed_out=True)


LONGER = replace(REQUEST, description="with every input (variable dimensions of 3)")
REFUSED = "TypeError: only length-1 arrays can be converted\n\nAt:\n  /models/m/1/model.py(7): execute\n"


@every_row(
    ("answer", "status", "evidence"),
    [
        (output(1.0), "", ""),
        (REFUSED, "warning", f"sent {LONGER.description}: TypeError: only length-1 arrays can be converted"),
        (output(1.0, datatype="FP64"), "failed", "the output OUT is FP64, not FP32"),
    ],
)
def test_longer_inputs_than_one_element_are_answered_too(answer, status, evidence):
    found = check_lengths(LoadedModel(Client(answer), "m", CONFIG), LONGER)
    assert (found.status if found else "") == status
    assert not found or evidence in found.evidence


def test_an_error_that_no_input_causes_is_no_refusal_of_longer_ones():
    client = Client("Stub process 'm_0_0' is not healthy.")
    with pytest.raises(RequestError, match="not healthy") as raised:
        check_lengths(LoadedModel(client, "m", CONFIG), LONGER)
    assert raised.value.sent == LONGER.description


PARTIAL = [replace(REQUEST, description=f"with {name} and no other optional input") for name in ("A", "B")]


@every_row(
    ("answers", "status", "evidence"),
    [
        ([output(1.0)], "", ""),
        (
            [output(1.0), "TypeError: unsupported operand type(s) for +: 'float' and 'NoneType'"],
            "warning",
            "answers with an error: sent with B and no other optional input: TypeError: unsupported",
        ),
        (
            [output(1.0), output(1.0, name="O")],
            "failed",
            "sent with B and no other optional input: the output OUT is missing",
        ),
    ],
)
def test_one_of_several_optional_inputs_is_enough(answers, status, evidence):
    found = check_optional(LoadedModel(Client(*answers), "m", CONFIG), PARTIAL)
    assert (found.status if found else "") == status
    assert not found or evidence in found.evidence


TWO = read_served_config({**SERVED, "output": [{**SERVED["output"][0], "name": name} for name in ("A", "B")]})
ALONE = "sent with every input, for the output B alone"


@every_row(
    ("answer", "said"),
    [
        ((output(1.0, name="B"),), ""),
        ((output(1.0, name="A"),), f"the response is without B: {ALONE}"),
        (RequestError("KeyError: 'A'", status=500), f"answers with an error: {ALONE}: KeyError: 'A'"),
    ],
)
def test_each_of_several_outputs_can_be_asked_for_alone(answer, said, monkeypatch):
    asked = []

    class Asked(Client):
        def infer_message(self, *_, outputs, **__):
            asked.append(outputs)

    answers = iter([output(1.0, name="A"), answer if isinstance(answer, RequestError) else answer[0]])
    monkeypatch.setattr(module_of_answers, "infer_together", lambda *_, **__: [next(answers)])
    found = check_outputs(LoadedModel(Asked(), "m", TWO), REQUEST)
    assert asked == [["A"], ["B"]]
    assert (found.evidence if found else "") == said
    assert found is None or found.status == "warning"


def test_an_error_that_no_choice_of_outputs_causes_is_raised(monkeypatch):
    error = RequestError("NameError: name 'x' is not defined", status=500)
    monkeypatch.setattr(module_of_answers, "infer_together", lambda *_, **__: [error])
    client = Client()
    client.infer_message = lambda *_, **__: None
    with pytest.raises(RequestError) as raised:
        check_outputs(LoadedModel(client, "m", TWO), REQUEST)
    assert raised.value.sent == "with every input, for the output A alone"


FOREIGN = replace(REQUEST, description="with long text that is not ASCII")


@every_row(
    ("answer", "warned"),
    [
        ("UnicodeEncodeError: 'ascii' codec can't encode character '\\xe9' in position 3", "text in ASCII alone"),
        ("the text is unfit: 'ascii' codec can't decode byte 0xc3 in position 5", "text in ASCII alone"),
        ("IndexError: index 512 is out of bounds for axis 0 with size 512", "short text alone"),
        ("RuntimeError: The size of tensor a (752) must match the size of tensor b (512) at", "short text alone"),
        ("RuntimeError: The expanded size of the tensor (752) must match the existing size (512)", "short text alone"),
        ("IndexError: index out of range in self", "short text alone"),
        ("Fail: [ONNXRuntimeError] : 2 : INVALID_ARGUMENT : indices element out of data bounds", "short text alone"),
        ("the prompt is too long for this model, which takes 512 tokens", ""),
        ("ValueError: could not convert string to float: '1 caf\xe9'", ""),
        (output(b"1 caf\xc3\xa9", datatype="BYTES"), ""),
    ],
)
def test_long_text_of_other_languages_is_answered_too(answer, warned):
    found = check_text(LoadedModel(Client(answer), "m", CONFIG), FOREIGN)
    assert (found is not None) is bool(warned)
    sent = f"answers {warned}: sent with long text that is not ASCII: "
    assert found is None or (found.status, found.evidence.startswith(sent)) == ("warning", True)
