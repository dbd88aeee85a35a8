"""What a server refuses, and how it changes a request before a model sees it, and a response afterwards."""

import pytest

from envpack.local.admission import admit, deliver, received, rewritten
from envpack.local.model_config import complete_config
from envpack.local.model_process import ModelFailed
from envpack.local.values import INVALID, SEQUENCE_END, SEQUENCE_START, RawTensor, Request
from envpack.repository.config import parse_config
from envpack.repository.config_rules import datatype_of
from envpack.server.tensors import encode

TWO = """
input [ { name: "A" data_type: TYPE_INT32 dims: [ 2 ] }, { name: "B" data_type: TYPE_INT32 dims: [ -1 ] } ]
output [ { name: "Y" data_type: TYPE_INT32 dims: [ -1 ] }, { name: "Z" data_type: TYPE_INT32 dims: [ -1 ] } ]
"""
OPTIONAL = TWO.replace("dims: [ -1 ] } ]\noutput", "dims: [ -1 ] optional: true } ]\noutput")
BATCHED = f"max_batch_size: 4\n{TWO}"
RAGGED = BATCHED.replace("dims: [ -1 ] } ]\noutput", "dims: [ -1 ] allow_ragged_batch: true } ]\noutput")
TEXT = 'input [ { name: "T" data_type: TYPE_STRING dims: [ 2 ] } ]'


def config(text):
    return complete_config(parse_config(text, "config.pbtxt"), "m")


def ints(name, *shape, datatype="INT32", size=None):
    count = 1
    for dimension in shape:
        count *= dimension
    return RawTensor(name, datatype, shape, bytes(4 * count if size is None else size))


def texts(name, shape, *elements, more=b""):
    return RawTensor(name, "BYTES", shape, encode("BYTES", elements) + more)


FLOATS, ONE = ints("A", 2, datatype="FP32"), ints("B", 1, 1)
REFUSED = [
    (TWO, (ints("A", 2), ints("X", 1)), {}, "the model has no input 'X'"),
    (TWO, (ints("A", 2), ints("B", 1)), {"outputs": frozenset("QZP")}, "the model has no output 'P'"),
    (TWO, (ints("A", 2), ints("A", 2)), {}, "the input 'A' is given twice"),
    (TWO, (ints("A", 2),), {"id": "7"}, "the input 'B' is missing"),
    (OPTIONAL, (ints("A", 2), ints("B", 1), ints("X", 1)), {}, "the model has no input 'X'"),
    (OPTIONAL, (), {}, "the input 'A' is missing"),
    (BATCHED, (ints("A"), ints("B", 1, 1)), {}, "the input 'A' has no batch dimension"),
    (BATCHED, (ints("A", 2, 2), ints("B", 3, 1)), {}, "its inputs have batches of different sizes: 2, 3"),
    (RAGGED, (ints("A", 2, 2), ints("B", 3, 1)), {}, "its inputs have batches of different sizes: 2, 3"),
    (
        'max_batch_size: 4 input [ { name: "A" data_type: TYPE_INT32 dims: [ 1 ] optional: true } ]',
        (),
        {},
        "it has no input, and so no batch dimension",
    ),
    (
        BATCHED,
        (ints("A", 5, 2), ints("B", 5, 1)),
        {},
        "its batch has 5 items, by the shape [5, 2], and the model takes 1 to 4",
    ),
    (
        BATCHED,
        (ints("A", 0, 2), ints("B", 0, 1)),
        {},
        "its batch has 0 items, by the shape [0, 2], and the model takes 1 to 4",
    ),
    (
        TWO,
        (ints("A", 2, datatype="FP32"), ints("B", 1)),
        {},
        "the input 'A' has the type FP32, and the model takes INT32",
    ),
    (TWO, (ints("A", 3), ints("B", 1)), {}, "the input 'A' has the shape [3], and the model takes [2]"),
    (TWO, (ints("A", 2, 1), ints("B", 1)), {}, "the input 'A' has the shape [2, 1], and the model takes [2]"),
    (
        BATCHED,
        (ints("A", 1, 3), ints("B", 1, 1)),
        {},
        "the input 'A' has the shape [1, 3], and the model takes [-1, 2]",
    ),
    (TWO, (ints("A", 2), ints("B", -1, size=4)), {}, "the input 'B' has the shape [-1], with a negative size"),
    (TWO, (ints("A", 2, size=7), ints("B", 1)), {}, "the input 'A' has 7 bytes, and its shape 8"),
    (TEXT, (texts("T", (2,), b"a", more=b"\x05\0\0\0x"),), {}, "the input 'T' has damaged strings, and its shape 2"),
    (TEXT, (texts("T", (2,), b"a", b"", b"c"),), {}, "the input 'T' has 3 strings, and its shape 2"),
]


def test_what_a_server_refuses_does_not_reach_the_model():
    said = []
    for text, inputs, fields, _ in REFUSED:
        with pytest.raises(ModelFailed) as raised:
            admit(Request(inputs, **fields), config(text))
        assert raised.value.code == INVALID
        said.append(raised.value.text)
    assert said == [f"refused before the model saw it: {expected}" for *_, expected in REFUSED]


def test_an_optional_input_can_take_the_place_of_another_one():
    """A server counts the inputs, and does not compare their names."""
    inputs = (ints("B", 1),)
    assert admit(Request(inputs), config(OPTIONAL)).inputs == inputs


ADMITTED = [
    (TWO, (ints("A", 2), ints("B", 9))),
    (TWO, (ints("B", 0), ints("A", 2))),
    (OPTIONAL, (ints("A", 2),)),
    (BATCHED, (ints("A", 4, 2), ints("B", 4, 1))),
    (RAGGED, (ints("A", 2, 2), ints("B", 2, 1))),
    (TEXT, (texts("T", (2,), b"", b"abc"),)),
]


def test_what_fits_reaches_the_model_as_it_is():
    for text, inputs in ADMITTED:
        assert admit(Request(inputs), config(text)).inputs == inputs, text


def test_a_request_that_names_no_output_wants_all():
    inputs = (ints("A", 2), ints("B", 1))
    assert admit(Request(inputs), config(TWO)).outputs == {"Y", "Z"}
    assert admit(Request(inputs, outputs=frozenset("Z")), config(TWO)).outputs == {"Z"}


def test_each_type_has_its_size():
    sizes = {"BOOL": 1, "UINT8": 1, "UINT16": 2, "UINT32": 4, "UINT64": 8, "INT8": 1, "INT16": 2, "INT32": 4}
    sizes |= {"INT64": 8, "FP16": 2, "BF16": 2, "FP32": 4, "FP64": 8}
    for name, size in sizes.items():
        text = f'input [ {{ name: "A" data_type: TYPE_{name} dims: [ 3 ] }} ]'
        assert datatype_of(config(text).input[0]) == name
        right = (ints("A", 3, datatype=name, size=3 * size),)
        assert admit(Request(right), config(text)).inputs == right
        with pytest.raises(ModelFailed, match=f"has {3 * size + 1} bytes, and its shape {3 * size}"):
            admit(Request((ints("A", 3, datatype=name, size=3 * size + 1),)), config(text))


RESHAPE = """{batch}
input [ {{ name: "A" data_type: TYPE_INT32 dims: [ {dims} ] reshape {{ shape: [ {shape} ] }} }} ]
output [ {{ name: "Y" data_type: TYPE_INT32 dims: [ {dims} ] reshape {{ shape: [ {shape} ] }} }} ]
"""


@pytest.mark.parametrize(
    ("batch", "dims", "shape", "client", "model"),
    [
        (0, "1, 6", "2, 3", (1, 6), (2, 3)),
        (8, "1, 6", "2, 3", (5, 1, 6), (5, 2, 3)),
        (8, "1", "", (5, 1), (5,)),
        (0, "-1, 1, -1", "-1, -1", (3, 1, 2), (3, 2)),
        (0, "4, -1", "-1, 2, 2", (4, 5), (5, 2, 2)),
    ],
)
def test_a_reshape_changes_what_the_model_sees_and_back(batch, dims, shape, client, model):
    found = config(RESHAPE.format(batch=f"max_batch_size: {batch}" if batch else "", dims=dims, shape=shape))
    assert admit(Request((ints("A", *client),)), found).inputs == (ints("A", *model),)
    assert deliver((ints("Y", *model),), found) == (ints("Y", *client),)


@pytest.mark.parametrize(
    ("dims", "shape", "model", "client"),
    [
        ("1, 6", "2, 3", (6,), (1, 6)),
        ("1, 6", "2, 3", (3, 2), (1, 6)),
        ("1, 6", "2, 3", (2, 4), None),
        ("-1", "1, -1", (3,), None),
        ("-1", "1, -1", (3, 3), None),
        ("1, -1", "-1", (2, 3), None),
    ],
)
def test_an_output_that_does_not_fit_its_reshape_has_the_shape_of_dims_if_that_holds_it(dims, shape, model, client):
    """A server sends the others with a shape that does not hold their elements."""
    found = config(RESHAPE.format(batch="", dims=dims, shape=shape))
    if client:
        assert deliver((ints("Y", *model),), found) == (ints("Y", *client),)
        return
    with pytest.raises(ModelFailed, match=r"the output 'Y' has the shape \[.*\], and its reshape takes \["):
        deliver((ints("Y", *model),), found)


def test_an_output_without_a_reshape_is_delivered_as_it_is():
    found = config(RESHAPE.format(batch="", dims="1, 6", shape="2, 3"))
    assert deliver((ints("OTHER", 2, 3),), found) == (ints("OTHER", 2, 3),)


# Parameters


def parameters(text, **fields):
    return received(Request((), parameters=text, **fields))


def test_what_a_server_keeps_for_itself_are_fields_of_the_request():
    found = parameters(
        '{"timeout":7,"priority":2,"sequence_id":"s","sequence_start":true,"binary_data_output":1,"a":1}'
    )
    assert (found.timeout, found.correlation_id, found.flags, found.parameters) == (7, "s", SEQUENCE_START, '{"a":1}')
    found = parameters("{}", correlation_id=4, flags=SEQUENCE_END, timeout=9, id="cut\0off")
    assert (found.timeout, found.correlation_id, found.flags, found.id) == (9, 4, SEQUENCE_END, "cut")


def test_values_are_written_as_a_server_writes_them():
    for given, written in {
        '{"b": true, "t": "gr\u00f6\u00dfe", "n": -3}': '{"b":true,"t":"größe","n":-3}',
        '{"cut": "a\\u0000b"}': '{"cut":"a"}',
        '{"large": 18446744073709551616}': '{"large":18446744073709552000.0}',
        '{"a": 1e16, "b": 1e21, "c": 1e-7, "d": 1.5e-5}': '{"a":10000000000000000.0,"b":1e21,"c":1e-7,"d":0.000015}',
        '{"a": 123456.75, "b": -0.0, "c": -2.5e300}': '{"a":123456.75,"b":-0.0,"c":-2.5e300}',
    }.items():
        assert parameters(given).parameters == written
        assert rewritten(given) == written


REFUSED_PARAMETERS = {
    '{"a": null}': "'a' is None but must be a text, a number or a boolean",
    '{"a": [1]}': "'a' is [1] but must be a text, a number or a boolean",
    '{"triton_a": 1}': "'triton_a' is 1 but names that begin with triton_ are reserved for Triton",
    '{"a\\u0000b": 1}': "'a\\x00b' is 1 but a server cuts its name at the zero byte",
    '{"a": "\\udc80"}': "'a' has a text that UTF-8 cannot encode",
    '{"timeout": -1}': "'timeout' is -1 but must be a whole number from 0 on",
    '{"timeout": "7"}': "'timeout' is '7' but must be a whole number from 0 on",
    '{"priority": true}': "'priority' is True but must be a whole number from 0 on",
    '{"timeout": 18446744073709551616}': "'timeout' is 18446744073709551616 but must be a whole number from 0 on",
    '{"sequence_id": -1}': "'sequence_id' is -1 but must be a whole number from 0 on",
    '{"sequence_start": 1}': "'sequence_start' is 1 but must be a boolean",
}


def test_parameters_that_a_server_refuses():
    said = {}
    for text in REFUSED_PARAMETERS:
        with pytest.raises(ModelFailed) as raised:
            parameters(text)
        said[text] = raised.value.text.removeprefix("refused before the model saw it: the parameter ")
    assert said == REFUSED_PARAMETERS
    for name in ("\udc80", 5):
        with pytest.raises(ModelFailed, match="the id .* is no text that UTF-8 can encode"):
            parameters("{}", id=name)
