"""What a model says to made-up requests: which errors are due to them, and which one is told."""

import pytest

from envpack.server.log import ModelError
from envpack.server.tensors import read_served_config
from envpack.verification.choice import Attempts
from envpack.verification.contents import CONTENTS
from envpack.verification.requests import generate_requests

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
