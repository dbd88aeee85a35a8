"""Answers of models: what HTTP can carry of streams, how their tensors are read, and how answers are compared."""

import math

import pytest

from envpack.server.tensors import Tensor, Tolerance, read_served_config
from envpack.verification import answers
from envpack.verification.answers import LoadedModel, responses_difference, unsendable
from tests.tables import every_row


def config(inputs="TYPE_FP32", outputs="TYPE_FP32", dims=(-1,), *, decoupled=True, **more):
    return read_served_config(
        {
            "input": [{"name": "IN", "data_type": inputs, "dims": [1]}],
            "output": [{"name": "OUT", "data_type": outputs, "dims": list(dims)}],
            "model_transaction_policy": {"decoupled": decoupled},
            **more,
        }
    )


TEXT = (Tensor("IN", "BYTES", (2,), ("é".encode(), b"b")),)
IMAGE = (Tensor("IN", "BYTES", (1,), (b"\x89PNG",)),)
UNSENDABLE = {
    "floats": (config(), (), ""),
    "text": (config("TYPE_STRING"), TEXT, ""),
    "an image": (config("TYPE_STRING"), IMAGE, "which cannot represent bytes that are no text"),
    "an image to another model": (config("TYPE_STRING", decoupled=False), IMAGE, ""),
    "an input of FP16": (config("TYPE_FP16"), (), "which cannot represent FP16"),
    "an output of BF16": (config(outputs="TYPE_BF16"), (), "which cannot represent BF16"),
    "a sequence": (config(sequence_batching={}), (), "cannot name its sequence over HTTP"),
    "an iterative sequence": (config(sequence_batching={"iterative_sequence": True}), (), ""),
}


@every_row("name", UNSENDABLE)
def test_what_http_cannot_carry_to_a_decoupled_model(name):
    served, inputs, reason = UNSENDABLE[name]
    found = unsendable(served, inputs)
    assert bool(found) == bool(reason)
    assert reason in found


# An output of a stream in the configuration, its value in the JSON, and the tensor's shape and elements.
VALUES = {
    "a number": ("TYPE_FP32", (1,), 2, (1,), (2.0,)),
    "numbers": ("TYPE_INT32", (-1,), [1, 2], (2,), (1, 2)),
    "none": ("TYPE_INT32", (-1,), [], (0,), ()),
    "strings": ("TYPE_STRING", (-1,), ["é"], (1,), ("é".encode(),)),
    "booleans": ("TYPE_BOOL", (2,), [True, False], (2,), (True, False)),
    "a matrix": ("TYPE_INT32", (2, 2), [1, 2, 3, 4], (2, 2), (1, 2, 3, 4)),
    "too few": ("TYPE_INT32", (2, 2), [1, 2], (2,), (1, 2)),
    "two variable dimensions": ("TYPE_INT32", (-1, 2, -1), [1, 2, 3, 4], (1, 2, 2), (1, 2, 3, 4)),
    "an odd number of elements": ("TYPE_INT32", (-1, 2), [1, 2, 3], (3,), (1, 2, 3)),
}


@every_row("name", VALUES)
def test_outputs_of_a_stream_get_the_type_and_shape_of_the_configuration(name, monkeypatch):
    datatype, dims, value, shape, elements = VALUES[name]
    monkeypatch.setattr(answers, "stream", lambda *_: [{"OUT": value, "model_name": "m"}, {"model_name": "m"}])
    ((found,), nothing) = LoadedModel(None, "m", config(outputs=datatype, dims=dims)).ask((), {})
    assert (found.name, found.shape, found.data, nothing) == ("OUT", shape, elements, ())


def test_what_is_no_number_in_a_stream_is_not_one(monkeypatch):
    monkeypatch.setattr(answers, "stream", lambda *_: [{"OUT": [None, 1]}])
    (((found,),)) = LoadedModel(None, "m", config()).ask((), {})
    assert math.isnan(found.data[0])


def one(*data, name="OUT"):
    return (Tensor(name, "INT32", (len(data),), data),)


@pytest.mark.parametrize(
    ("expected", "found", "says"),
    [
        ((one(1),), (one(1) + one(2, name="MORE"),), ""),
        ((one(1),), (one(2),), "OUT element 0 is 2 instead of 1"),
        ((one(1),), (one(1, name="X"),), "OUT is missing"),
        ((one(1), one(2)), (one(1), one(2)), ""),
        ((one(1), one(2)), (one(2), one(1)), "the same responses in another order"),
        ((one(1), one(2)), (one(2), one(2)), "response 0: OUT element 0 is 2 instead of 1"),
        ((one(1), one(2)), (one(1),), "1 response instead of 2"),
        ((), (one(1), one(2)), "2 responses instead of 0"),
        ((), (), ""),
    ],
)
def test_answers_are_compared_response_by_response(expected, found, says):
    assert responses_difference(expected, found, lambda _: Tolerance()) == says
