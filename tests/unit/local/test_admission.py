"""What a server rejects, and how it changes shapes, before a model sees a request and after it has answered."""

import pytest

from envpack.local import ModelFailed, RawTensor, Request
from envpack.local.admission import admit, datatype_of, deliver
from envpack.local.model_config import complete_config
from envpack.local.sequences import Sequences
from envpack.repository import parse_config
from envpack.server import encode

TWO = """
input [ { name: "A" data_type: TYPE_INT32 dims: [ 2 ] }, { name: "B" data_type: TYPE_INT32 dims: [ -1 ] } ]
output [ { name: "Y" data_type: TYPE_INT32 dims: [ -1 ] }, { name: "Z" data_type: TYPE_INT32 dims: [ -1 ] } ]
"""
OPTIONAL = TWO.replace("dims: [ -1 ] } ]\noutput", "dims: [ -1 ] optional: true } ]\noutput")
BATCHED = f"max_batch_size: 4\n{TWO}"
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


REJECTED = [
    (TWO, (ints("A", 2), ints("X", 1)), {}, "unexpected inference input 'X' for model 'm'"),
    (TWO, (ints("A", 2), ints("B", 1)), {"outputs": frozenset("QZP")}, "unexpected inference output 'P' for model 'm'"),
    (TWO, (ints("A", 2), ints("A", 2)), {}, "[request id: <id_unknown>] input 'A' already exists in request"),
    (
        TWO,
        (ints("A", 2),),
        {"id": "7"},
        (
            "[request id: 7] expected 2 inputs but got 1 inputs for model 'm'. Got input(s) ['A'], but missing "
            "required input(s) ['B']. Please provide all required input(s)."
        ),
    ),
    (
        OPTIONAL,
        (ints("A", 2), ints("B", 1), ints("X", 1)),
        {},
        (
            "[request id: <id_unknown>] expected number of inputs between 1 and 2 but got 3 inputs for model 'm'. Got "
            "input(s) ['A','B','X'], but missing required input(s) ]. Please provide all required input(s)."
        ),
    ),
    (
        OPTIONAL,
        (),
        {},
        (
            "[request id: <id_unknown>] expected number of inputs between 1 and 2 but got 0 inputs for model 'm'. Got "
            "input(s) [], but missing required input(s) ['A']. Please provide all required input(s)."
        ),
    ),
    (
        BATCHED,
        (ints("A"), ints("B", 1, 1)),
        {},
        "[request id: <id_unknown>] input 'A' has no shape but model requires batch dimension for 'm'",
    ),
    (
        BATCHED,
        (ints("A", 2, 2), ints("B", 3, 1)),
        {},
        "[request id: <id_unknown>] input 'A' batch size does not match other inputs for 'm'",
    ),
    (
        BATCHED,
        (ints("A", 5, 2), ints("B", 5, 1)),
        {},
        "[request id: <id_unknown>] inference request batch-size must be <= 4 for 'm'",
    ),
    (
        TWO,
        (ints("A", 2, datatype="FP32"), ints("B", 1)),
        {},
        "[request id: <id_unknown>] inference input 'A' data-type is 'FP32', but model 'm' expects 'INT32'",
    ),
    (
        TWO,
        (ints("A", 3), ints("B", 1)),
        {},
        "[request id: <id_unknown>] unexpected shape for input 'A' for model 'm'. Expected [2], got [3]. ",
    ),
    (
        TWO,
        (ints("A", 2, 1), ints("B", 1)),
        {},
        "[request id: <id_unknown>] unexpected shape for input 'A' for model 'm'. Expected [2], got [2,1]. ",
    ),
    (
        TWO,
        (ints("A", 2, size=7), ints("B", 1)),
        {},
        "[request id: <id_unknown>] input byte size mismatch for input 'A' for model 'm'. Expected 8, got 7",
    ),
    (
        TEXT,
        (texts("T", (2,), b"a", more=b"\x05\0\0\0x"),),
        {},
        "[request id: <id_unknown>] expected 2 string elements for inference input 'T' for model 'm', got 2",
    ),
    (
        TEXT,
        (texts("T", (2,), b"a", b"", b"c"),),
        {},
        "[request id: <id_unknown>] expected 2 string elements for inference input 'T' for model 'm', got 3",
    ),
]


def test_what_a_server_rejects_with_its_words():
    said = []
    for text, inputs, fields, _ in REJECTED:
        with pytest.raises(ModelFailed) as raised:
            admit(Request(inputs, **fields), config(text))
        said.append(raised.value.text)
    assert said == [expected for *_, expected in REJECTED]


def test_a_shape_with_a_batch_is_explained():
    with pytest.raises(ModelFailed, match=r"Expected \[-1,2\], got \[1,3\]. NOTE: Setting a non-zero max_batch_size"):
        admit(Request((ints("A", 1, 3), ints("B", 1, 1))), config(BATCHED))


RAGGED = BATCHED.replace("dims: [ -1 ] } ]\noutput", "dims: [ -1 ] allow_ragged_batch: true } ]\noutput")
ADMITTED = [
    (TWO, (ints("A", 2), ints("B", 9))),
    (TWO, (ints("B", 0), ints("A", 2))),
    (OPTIONAL, (ints("A", 2),)),
    (BATCHED, (ints("A", 4, 2), ints("B", 4, 1))),
    (RAGGED, (ints("A", 2, 2), ints("B", 3, 1))),
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
        with pytest.raises(ModelFailed, match=f"Expected {3 * size}, got {3 * size + 1}"):
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


def test_what_does_not_fit_the_reshape_is_delivered_as_it_is():
    found = config(RESHAPE.format(batch="", dims="1, 6", shape="2, 3"))
    for tensor in (ints("Y", 6), ints("Y", 2, 4), ints("OTHER", 2, 3)):
        assert deliver((tensor,), found) == (tensor,)


# Sequences


CONTROL = """max_batch_size: {batch}
input [ {{ name: "A" data_type: TYPE_INT32 dims: [ 1 ] }} ]
sequence_batching {{
  control_input [
    {{ name: "START" control [ {{ kind: CONTROL_SEQUENCE_START int32_false_true: [ 4, 5 ] }} ] }},
    {{ name: "END" control [ {{ kind: CONTROL_SEQUENCE_END fp32_false_true: [ 0.5, 1.5 ] }} ] }},
    {{ name: "READY" control [ {{ kind: CONTROL_SEQUENCE_READY bool_false_true: [ false, true ] }} ] }},
    {{ name: "ID" control [ {{ kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_{id} }} ] }}
  ]
  state [ {{ input_name: "S" output_name: "S2" data_type: TYPE_{state} dims: [ 2, -1 ] }} ]
}}
"""


def sequences(batch=0, id_type="UINT64", state="INT32"):
    return Sequences(config(CONTROL.format(batch=batch, id=id_type, state=state)))


def asked(sequence=7, flags=0, shape=(1,)):
    return Request((ints("A", *shape),), correlation_id=sequence, flags=flags)


def test_control_inputs_and_states_come_before_those_of_the_request():
    found = sequences()
    for flags, start, end in ((1, 5, 0.5), (0, 4, 0.5), (2, 4, 1.5)):
        inputs = found.admit(asked(flags=flags)).inputs
        assert inputs == (
            RawTensor("S", "INT32", (2, 1), encode("INT32", (0, 0))),
            RawTensor("START", "INT32", (1,), encode("INT32", (start,))),
            RawTensor("END", "FP32", (1,), encode("FP32", (end,))),
            RawTensor("READY", "BOOL", (1,), encode("BOOL", (True,))),
            RawTensor("ID", "UINT64", (1,), encode("UINT64", (7,))),
            ints("A", 1),
        )


def test_with_a_batch_dimension_all_have_a_batch_of_one():
    inputs = sequences(batch=4, id_type="STRING", state="STRING").admit(asked("one", 1, (1, 1))).inputs
    assert [(tensor.name, tensor.shape) for tensor in inputs] == [
        ("S", (1, 2, 1)), ("START", (1, 1)), ("END", (1, 1)), ("READY", (1, 1)), ("ID", (1, 1)), ("A", (1, 1)),
    ]  # fmt: skip
    assert inputs[0].content == encode("BYTES", (b"", b""))
    assert inputs[4] == RawTensor("ID", "BYTES", (1, 1), encode("BYTES", (b"one",)))
    assert sequences(state="BOOL").admit(asked(flags=1)).inputs[0].content == bytes(2)


def test_a_sequence_has_to_begin_and_is_forgotten_at_its_end():
    found = sequences(batch=4)
    start = "inference request for sequence 7 to model 'm' must specify the START flag on the first request"
    cases = [
        (asked(0, 1, (1, 1)), "must specify a non-zero or non-empty correlation ID"),
        (asked(7, 1, (2, 1)), "must specify batch-size 1 due to requirements of sequence batcher"),
        (asked(7, 0, (1, 1)), start),
        (asked(7, 1, (1, 1)), ""),
        (asked(7, 0, (1, 1)), ""),
        (asked(7, 2, (1, 1)), ""),
        (asked(7, 0, (1, 1)), start),
        (asked(7, 3, (1, 1)), ""),  # of one request
        (asked(7, 2, (1, 1)), start),
    ]
    for request, says in cases:
        if not says:
            found.admit(request)
            continue
        with pytest.raises(ModelFailed) as raised:
            found.admit(request)
        assert says in raised.value.text


def test_a_name_of_a_sequence_does_not_fit_a_number():
    with pytest.raises(ModelFailed, match="^the sequence 'one' is no number, which the input 'ID' needs$"):
        sequences().admit(asked("one", 1))


def test_a_control_input_needs_its_two_values():
    text = CONTROL.format(batch=0, id="UINT64", state="INT32").replace("int32_false_true: [ 4, 5 ]", "")
    with pytest.raises(ModelFailed, match="^the control input 'START' of model 'm' has no values for false and true$"):
        Sequences(config(text)).admit(asked(flags=1))


def test_an_iterative_sequence_is_one_request():
    text = CONTROL.format(batch=0, id="UINT64", state="INT32").replace("state [", "iterative_sequence: true state [")
    assert Sequences(config(text)).admit(asked(0)) == asked(0)
