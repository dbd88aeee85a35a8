"""Errors of made-up requests: which of them the request causes, and which one the verdict names."""

import json

import pytest

from envpack.server.kserve import RequestError
from envpack.server.log import ModelError
from envpack.server.tensors import Tensor, read_served_config
from envpack.verification import choice
from envpack.verification.choice import Attempts, record_sample
from envpack.verification.contents import CONTENTS
from envpack.verification.fault_catalogue import NOT_REACHED
from envpack.verification.judge import Judge, JudgeOptions
from envpack.verification.requests import generate_requests
from tests.unit.verification.words import CONFIG, TRACE, Client, judge

NO_FILE = "FileNotFoundError: [Errno 2] No such file or directory: '/weights'"
NO_TENSOR = "AttributeError: 'NoneType' object has no attribute 'as_numpy'"


def config(kind="TYPE_FP32", **more):
    return read_served_config({"input": [{"name": "IN", "data_type": kind, "dims": [2]}], **more})


def error(text, *lines):
    """An exception of a model that was raised in these lines, the innermost last."""
    return ModelError(text, tuple(f"/models/m/1/model.py:{line} in execute" for line in lines), text)


@pytest.fixture
def ones():
    return next(generate_requests(config()))


@pytest.fixture
def zeros():
    *_, (_, request) = Attempts(config(), asks=False)
    return request


def attempts(*, asks=False):
    return Attempts(config(), asks=asks)


def test_the_plainest_request_is_the_first_and_each_has_every_input(ones):
    sent = [(str(filling), request) for filling, request in attempts()]
    assert [name for name, _ in sent] == ["", "zeros"]
    assert sent[0][1] == ones


def test_bytes_that_json_cannot_represent_are_not_sent_to_a_decoupled_model():
    decoupled = config("TYPE_STRING", model_transaction_policy={"decoupled": True})
    assert [filling.contents["IN"] for filling, _ in Attempts(config("TYPE_STRING"), asks=False) if filling.contents]
    sent = [filling.contents.get("IN", "text") for filling, _ in Attempts(decoupled, asks=False)]
    assert set(sent) < set(CONTENTS)
    assert {"text", "JSON"} <= set(sent)
    assert not {"PNG", "JPEG", "WAV"} & set(sent)


def test_the_refusal_that_got_furthest_is_told(ones, zeros):
    tried = attempts()
    assert tried.refusal == ""
    for request, text, line in [(ones, "a", 5), (zeros, "b", 9), (zeros, "c", 9), (zeros, "d", 7)]:
        assert tried.is_refusal(request, error(f"ValueError: {text}", 3, line))
    assert tried.refusal == "ValueError: b, at /models/m/1/model.py:9 in execute"


def test_an_error_without_a_line_is_told_if_it_is_the_only_one(ones):
    tried = attempts()
    assert tried.is_refusal(ones, error("ValueError: no"))
    assert tried.refusal == "ValueError: no"


def test_what_lacks_a_thing_whatever_is_sent_is_at_fault(ones, zeros):
    tried = attempts()
    assert tried.is_refusal(ones, error(NO_FILE)), "the file may be named by the input"
    assert tried.is_refusal(ones, error(NO_FILE)), "so it may still be, if the same is sent again"
    assert not tried.is_refusal(zeros, error(NO_FILE))
    assert tried.is_refusal(zeros, error(NO_FILE.replace("weights", "0"))), "the input decides which file"


@pytest.mark.parametrize(("asks", "is_refusal"), [(False, False), (True, True)])
def test_the_answer_of_another_model_may_lack_a_tensor_for_what_was_sent(ones, zeros, asks, is_refusal):
    tried = attempts(asks=asks)
    assert tried.is_refusal(ones, error(NO_TENSOR))
    assert tried.is_refusal(zeros, error(NO_TENSOR)) is is_refusal
    assert not attempts(asks=asks).is_refusal(ones, error("NameError: name 'x' is not defined"))


def test_a_model_that_asks_another_one_is_at_fault_for_any_other_thing_that_is_missing(ones, zeros):
    tried = attempts(asks=True)
    assert tried.is_refusal(ones, error(NO_FILE))
    assert not tried.is_refusal(zeros, error(NO_FILE))


def test_memory_that_does_not_suffice_is_no_fault_after_a_refusal(ones, zeros):
    too_large = error("MemoryError: 3 GiB")
    assert not attempts().is_refusal(ones, too_large)
    tried = attempts()
    assert tried.is_refusal(ones, error("ValueError: too short"))
    assert tried.is_refusal(zeros, too_large)


def test_a_model_that_refuses_what_was_made_up_needs_a_sample(server, model):
    verdict = judge(server, error=RequestError(TRACE, status=500)).judge(model)
    assert (verdict.ok, verdict.complete, verdict.failure) == (True, False, None)
    check = verdict.checks[-1]
    assert (check.id, check.status) == ("infer", "unchecked")
    refused = "loads; needs a sample, since it refuses generated inputs: ValueError: boom"
    assert check.evidence == f"{refused}, at /srv/m/1/model.py:9 in execute"
    assert check.fix == "record a sample: envpack run m -i FILE --save-sample"


def test_a_model_that_refuses_requests_without_parameters_has_to_do_without_them(server, model):
    """No sample has them."""
    (model.folder / "1/model.py").write_text("given = json.loads(request.parameters())['temperature']")
    for text, fix in {
        "KeyError: 'temperature'": "let execute do without parameters of requests, as samples have none: ",
        "ValueError: boom": "record a sample: envpack run m ",
    }.items():
        check = judge(server, error=RequestError(text, status=500)).judge(model).checks[-1]
        assert (check.status, check.fix.startswith(fix)) == ("unchecked", True)


def test_a_model_that_waits_long_for_a_host_may_need_the_host_or_a_sample(server, model, monkeypatch):
    monkeypatch.setattr(choice, "_FILLING_SECONDS", 0.0)
    waited = RequestError("no tokenizer: ConnectError: [Errno -2] Name or service not known", status=500)
    check = judge(server, error=waited).judge(model).checks[-1]
    assert (check.status, check.fix) == ("unchecked", f"{NOT_REACHED}; or {record_sample(model)}")


def test_a_model_whose_calls_fail_may_have_the_reason_in_their_responses(server, model):
    (model.folder / "1/model.py").write_text("answer = pb_utils.InferenceRequest(model_name='n').exec()\n")
    check = judge(server, error=RequestError(NO_TENSOR, status=500)).judge(model).checks[-1]
    assert (check.status, check.fix.endswith(f"has_error(); or {record_sample(model)}")) == ("unchecked", True)


ABSENT = "ModuleNotFoundError: No module named 'cv2'"
TRACED = f'Traceback (most recent call last):\n  File "/m/model.py", line 9, in execute\n    import cv2\n{ABSENT}\n'


@pytest.mark.parametrize(
    ("text", "kind", "status"),
    [
        (TRACED, "module-missing", "failed"),
        (json.dumps({"label": None, "error": TRACED}), "module-missing", "failed"),
        (f" {ABSENT}", "module-missing", "failed"),
        ("Error: no face found", "", "unchecked"),
        ("{'error': 'no face found'}", "", "unchecked"),
        ('{"error": null, "label": "cat"}', "", "ok"),
        ('{"error": "", "label": "cat"}', "", "ok"),
        ("Error", "", "ok"),
        ("seven", "", "ok"),
    ],
)
def test_a_text_that_reports_an_error_is_that_error(server, model, text, kind, status):
    """Code that catches every exception answers requests with nothing but such texts."""
    config = {**CONFIG, "output": [{"name": "OUT", "data_type": "TYPE_STRING", "dims": [1]}]}

    class Catching(Client):
        def infer(self, *_, **__):
            return (Tensor("OUT", "BYTES", (1,), (text.encode(),)),)

    verdict = Judge(server, Catching(server, config), JudgeOptions(5.0, requests=1)).judge(model)
    infer = next(check for check in verdict.checks if check.id == "infer")
    assert (verdict.failure.kind if verdict.failure else "", infer.status) == (kind, status)
    if kind:
        assert infer.evidence == f"sent with every input, and the text of OUT reports: {ABSENT}"


def test_of_several_refusals_the_one_that_got_furthest_in_the_code_is_shown(server, model):
    """It may be a fault of the model, which only an input that it can read reaches."""
    reached = iter((("UnidentifiedImageError: cannot identify", 9), ("AttributeError: no attribute 'astype'", 12)))

    class Reading(Client):
        def infer(self, *_, **__):
            what, line = next(reached, ("UnidentifiedImageError: cannot identify", 9))
            raise RequestError(f"{what}\n\nAt:\n  /srv/m/1/model.py({line}): execute\n", status=500)

    check = Judge(server, Reading(server, CONFIG), JudgeOptions(5.0, requests=1)).judge(model).checks[-1]
    assert check.evidence.endswith(": AttributeError: no attribute 'astype', at /srv/m/1/model.py:12 in execute")
