import base64
import json
import math
import struct
from dataclasses import replace

import pytest

from envpack.server.tensors import Tensor, Tolerance, read_served_config
from envpack.support.errors import InputError
from envpack.verification.requests import generate_requests, inputs_too_large
from envpack.verification.samples import read_samples
from tests.tables import every_row

CONFIG = read_served_config(
    {
        "max_batch_size": 8,
        "input": [
            {"name": "IN", "data_type": "TYPE_FP32", "dims": [-1, 2]},
            {"name": "TEXT", "data_type": "TYPE_STRING", "dims": [1]},
        ],
        "output": [{"name": "OUT", "data_type": "TYPE_INT32", "dims": [1]}],
    }
)


def read(tmp_path, content, config=CONFIG):
    file = tmp_path / "smoke.json"
    file.write_text(content if isinstance(content, str) else json.dumps(content))
    return read_samples(file, config)


def request(*tensors, **more):
    keys = ("name", "datatype", "shape", "data")
    return {"inputs": [dict(zip(keys, tensor, strict=True)) for tensor in tensors], **more}


TEXT = ("TEXT", "BYTES", [2, 1], ["a", "b"])


def test_the_body_of_a_request_has_a_sample_for_each_item_of_its_batch(tmp_path):
    body = request(("IN", "FP32", [2, 1, 2], [[[1, 2]], [[3, 4]]]), TEXT, id="7", outputs=[{"name": "OUT"}])
    assert read(tmp_path, body) == read(
        tmp_path, {"data": [{"IN": [1, 2], "TEXT": ["a"]}, {"IN": [3, 4], "TEXT": ["b"]}]}
    )
    unbatched = replace(CONFIG, largest_batch=0)
    assert [len(sample.inputs[0].data) for sample in read(tmp_path, request(TEXT), unbatched).samples] == [2]


@every_row(
    ("body", "message"),
    [
        (request(("IN", "FP64", [1, 1, 2], [1, 2])), "IN has the datatype FP64, and the model takes FP32"),
        (request(("OTHER", "FP32", [1, 1], [1])), "data[0]: the model has no tensor 'OTHER', only IN, TEXT"),
        (request(("IN", "FP32", [1 << 40, 1, 2], [1, 2])), "2 elements of IN do not fill the shape [1099511627776, 1"),
        (request(("IN", "FP32", [1, 1, 2], [1])), "1 elements of IN do not fill the shape [1, 1, 2]"),
        (request(TEXT, ("IN", "FP32", [1, 1, 2], [1, 2])), "the inputs have different numbers of items"),
        (request(("IN", "FP32", [0, 1, 2], [])), "data is empty"),
        (request(TEXT, parameters={"sequence_id": 1}), "unknown key 'parameters' of a request; known: id, inputs, o"),
        ({"inputs": [{"name": "TEXT", "datatype": "BYTES", "shape": [1, 1]}]}, "'data' is missing"),
        ({"inputs": {"IN": [1]}}, "inputs must be a list of objects with name, datatype, shape and data"),
    ],
)
def test_a_request_that_the_server_would_not_read_so_is_no_sample(tmp_path, body, message):
    with pytest.raises(InputError) as raised:
        read(tmp_path, body)
    assert raised.value.message.startswith(f"invalid samples: {message}")


def test_every_notation_of_a_tensor(tmp_path):
    text = base64.b64encode(b"hi").decode()
    with_lengths = base64.b64encode(b"\2\0\0\0hi").decode()
    samples = read(
        tmp_path,
        {
            "data": [
                {"IN": [1, 2, 3, 4], "TEXT": ["hé"]},
                {"IN": {"content": [1, 2], "shape": [1, 2]}, "TEXT": {"b64": text}},
                {"IN": [[1, 2]], "TEXT": {"content": {"b64": text}, "shape": [1]}},
                {"IN": [1, 2], "TEXT": [{"b64": text}]},
                {
                    "IN": {"b64": base64.b64encode(struct.pack("<2f", 1, 2)).decode()},
                    "TEXT": {"b64_with_lengths": with_lengths},
                },
                {"IN": [1, 2], "TEXT": {"b64": f"{text[:2]}\n{text[2:]}\n", "shape": [1]}},  # as of the program base64
            ]
        },
    ).samples
    assert [s.inputs[0].shape for s in samples] == [(1, 2, 2), *[(1, 1, 2)] * 5]
    assert [s.inputs[1].data for s in samples] == [("hé".encode(),), *[(b"hi",)] * 5]
    assert samples[4].inputs[0].data == (1.0, 2.0)
    assert samples[0].expected is None


@pytest.mark.parametrize("share", [0, 1])
def test_none_or_all_of_the_answers_may_have_to_be_right(tmp_path, share):
    data = {"data": [{"IN": [1, 2], "TEXT": ["a"]}], "envpack": {"minimum_match": share}}
    assert read(tmp_path, data).minimum_match == share


def test_settings(tmp_path):
    samples = read(
        tmp_path,
        {
            "data": [{"IN": [1, 2], "TEXT": ["a"]}],
            "validation_data": [{"OUT": [3]}],
            "envpack": {"rtol": 0.1, "outputs": {"OUT": {"atol": 2}}, "minimum_match": 0.9, "noun": "images"},
        },
    )
    assert samples.tolerance("OUT") == Tolerance(0.1, 2)
    assert samples.tolerance("other") == Tolerance(0.1, 1e-8)
    assert (samples.minimum_match, samples.noun) == (0.9, "images")
    assert samples.samples[0].expected[0][0].data == (3,)


ONE = {"IN": [1, 2], "TEXT": ["a"]}
STREAM = replace(CONFIG, decoupled=True)


def expected_streams(tmp_path, *answers):
    """The elements of OUT in each response that is expected of each request to a decoupled model."""
    content = {"data": [ONE] * len(answers), "validation_data": list(answers)}
    found = [sample.expected for sample in read(tmp_path, content, STREAM).samples]
    return [each if each is None else [[tensor.data for tensor in response] for response in each] for each in found]


def test_a_list_has_the_expected_responses_of_a_decoupled_model(tmp_path):
    answers = [{"OUT": [1]}, {}, {"OUT": [2]}], {"OUT": [3]}, [], {}
    assert expected_streams(tmp_path, *answers) == [[[(1,)], [], [(2,)]], [[(3,)]], [], None]


def test_a_faulty_response_of_a_stream_is_named(tmp_path):
    with pytest.raises(InputError, match=r"validation_data\[1\]\[1\]\.OUT: 'a' is not INT32"):
        expected_streams(tmp_path, {}, [{}, {"OUT": ["a"]}])


def test_streams_of_a_decoupled_sequence_model_are_in_the_lists_of_their_sequences(tmp_path):
    content = {"data": [[ONE, ONE], [ONE]], "validation_data": [[[{}, {}], {}], [[]]]}
    found = read(tmp_path, content, replace(STREAM, sequence=True)).samples
    assert [sample.expected for sample in found] == [((), ()), None, ()]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "Expecting property name"),
        ("[]", "the document is no JSON object"),
        ({}, "'data' is missing"),
        ({"data": []}, "data is empty"),
        ({"data": 3}, "data must be a list"),
        ({"data": [[ONE]]}, "holds sequences"),
        ({"data": [{"X": [1]}]}, "the model has no tensor 'X', only IN, TEXT"),
        ({"data": [{"IN": ["a", "b"]}]}, r"data\[0\].IN: 'a' is not FP32"),
        ({"data": [{"IN": [1, 2, 3]}]}, r"3 elements do not fill the shape \[1, 2\]"),
        ({"data": [{"IN": {"b64": "?"}}]}, r"data\[0\].IN: b64: "),
        ({"data": [{"TEXT": {"b64": 1}}]}, r"data\[0\].TEXT: b64: "),
        (
            {"data": [{"TEXT": {"base64": "aGk="}}]},
            r'data\[0\].TEXT: must be a flat list of elements, \{"b64": "..."\}',
        ),
        ({"data": [{"TEXT": {"b64_with_lengths": "aGk="}}]}, "the length of a string is truncated"),
        ({"data": [ONE], "validation_data": [{}, {}]}, "one entry for each entry of data"),
        ({"data": [ONE], "validation_data": []}, "one entry for each entry of data"),
        ({"data": [ONE], "validation_data": None}, "validation_data must be a list"),
        ({"data": [3]}, r"data\[0\] must be an object, with tensors by their names"),
        ({"data": [ONE], "validation_data": [3]}, r"validation_data\[0\] must be an object, with tensors by"),
        ({"data": [ONE], "validation_data": [[{}]]}, "holds sequences"),
        ({"data": [ONE], "envpack": {"tol": 1}}, "unknown key 'tol'"),
        ({"data": [ONE], "validaton_data": [{"OUT": [1]}]}, "'validaton_data'; known: data, envpack, validation_data"),
        ({"data": [ONE], "envpack": {"outputs": {"OUT": {"tol": 1}}}}, "unknown key 'tol' of the output OUT; known:"),
        ({"data": [ONE], "envpack": {"minimum_match": 1.1}}, "minimum_match is 1.1 but must be between 0 and 1"),
        ({"data": [ONE], "envpack": {"minimum_match": -0.1}}, "minimum_match is -0.1 but must be between 0 and 1"),
        ({"data": [ONE], "envpack": {"outputs": {"X": {}}}}, "no output 'X'"),
        ({"data": [[]]}, "holds sequences"),
        ({"data": [{"IN": [1, 1e39]}]}, r"data\[0\].IN: 1e\+39 is outside of FP32"),
        ({"data": [{"IN": [1, 10**400]}]}, "int too large"),
        ({"data": [ONE], "validation_data": [{"OUT": [1 << 31]}]}, "2147483648 is outside of INT32"),
        ({"data": [ONE], "envpack": {"rtol": 10**400}}, "int too large"),
        *(
            ({"data": [{"IN": {"content": [1, 2], "shape": shape}}]}, '"shape" must be a list of whole numbers')
            for shape in (math.inf, [math.inf, 2], [1, 2.0], ["1", 2], [-1, -2], 3, {"a": 1})
        ),
        ('{"data": [{"IN": ' + "[" * 900 + "1" + "]" * 900 + "}]}", "1 elements do not fill"),
        ('{"data": [{"IN": ' + "[" * 100_000, "nested too deeply"),
    ],
)
def test_bad_samples_are_explained(tmp_path, content, message):
    with pytest.raises(InputError, match=message) as caught:
        read(tmp_path, content)
    assert caught.value.kind == "bad-samples"
    assert "smoke.json" in caught.value.where


def test_sequences_without_a_request_are_no_samples(tmp_path):
    with pytest.raises(InputError, match="data is empty"):
        read(tmp_path, {"data": [[], []]}, read_served_config({"sequence_batching": {}}))


def test_a_model_without_tensors_has_none_to_propose(tmp_path):
    with pytest.raises(InputError) as caught:
        read(tmp_path, {"data": [{"IN": [1]}]}, read_served_config({}))
    assert caught.value.message == "invalid samples: data[0]: the model has no tensor 'IN'"
    assert caught.value.kind == "bad-samples"


def test_samples_that_are_no_readable_file_are_bad_samples(tmp_path):
    with pytest.raises(InputError, match="cannot be read: Is a directory") as caught:
        read_samples(tmp_path, CONFIG)
    assert caught.value.kind == "bad-samples"


@pytest.mark.parametrize(
    ("dims", "requests"),
    [([4096, 4096], [1]), ([4096, 2048], [1, 2]), ([4097, 4096], []), ([50_000, 50_000], []), ([1 << 62, -1], [])],
)
def test_giant_inputs_are_not_made_up(dims, requests):
    config = read_served_config(
        {"max_batch_size": 2, "input": [{"name": "IN", "data_type": "TYPE_UINT8", "dims": dims}]}
    )
    assert [request.inputs[0].shape[0] for request in generate_requests(config)] == requests
    assert inputs_too_large(config) == (requests == [])


def test_generated_inputs_are_ones():
    alone, two = generate_requests(CONFIG)
    assert [(t.name, t.datatype, t.shape, t.data) for t in alone.inputs] == [
        ("IN", "FP32", (1, 1, 2), (1.0, 1.0)),
        ("TEXT", "BYTES", (1, 1), (b"1",)),
    ]
    assert [(t.shape, t.data) for t in two.inputs] == [((2, 1, 2), (1.0,) * 4), ((2, 1), (b"1", b"1"))]


def test_a_nested_list_is_a_sequence(tmp_path):
    config = read_served_config(
        {"sequence_batching": {}, "input": [{"name": "IN", "data_type": "TYPE_FP32", "dims": [1]}]}
    )
    content = {"data": [[{"IN": [1]}, {"IN": [2]}], {"IN": [3]}]}
    assert [sample.parameters for sample in read(tmp_path, content, config).samples] == [
        {"sequence_id": 1, "sequence_start": True, "sequence_end": False},
        {"sequence_id": 1, "sequence_start": False, "sequence_end": True},
        {"sequence_id": 2, "sequence_start": True, "sequence_end": True},
    ]


def test_a_fixed_first_dimension_that_is_no_batch_stays():
    config = read_served_config({"input": [{"name": "IN", "data_type": "TYPE_FP32", "dims": [3, 2]}]})
    (request,) = generate_requests(config)
    assert (request.inputs[0].shape, request.inputs[0].data) == ((3, 2), (1.0,) * 6)


def test_a_variable_dimension_is_one_and_an_empty_one_stays_empty():
    config = read_served_config({"input": [{"name": "IN", "data_type": "TYPE_FP32", "dims": [-1, 0]}]})
    (request,) = generate_requests(config)
    assert (request.inputs[0].shape, request.inputs[0].data) == ((1, 0), ())


def test_requests_with_optional_inputs_batches_and_sequences():
    inputs = [{"name": "A", "data_type": "TYPE_INT8", "dims": [1]}]
    optional = [*inputs, {"name": "B", "data_type": "TYPE_BOOL", "dims": [1], "optional": True}]

    def requests(**config):
        found = generate_requests(read_served_config(config))
        return [([tensor.name for tensor in r.inputs], r.inputs[0].shape, r.parameters) for r in found]

    assert requests() == []
    assert requests(input=optional) == [(["A", "B"], (1,), {}), (["A"], (1,), {})]
    assert requests(input=optional[1:]) == [(["B"], (1,), {})]
    assert requests(input=inputs, max_batch_size=1) == [(["A"], (1, 1), {})]
    assert requests(input=inputs, max_batch_size=2) == [(["A"], (1, 1), {}), (["A"], (2, 1), {})]
    whole = {"sequence_id": 1, "sequence_start": True, "sequence_end": True}
    assert requests(input=inputs, max_batch_size=2, sequence_batching={}) == [(["A"], (1, 1), whole)]


EVERY_TYPE = read_served_config(
    {
        "input": [
            {"name": name, "data_type": f"TYPE_{name}", "dims": [-1]}
            for name in ("BOOL", "FP32", "BF16", "INT8", "UINT64", "STRING")
        ]
    }
)


@pytest.mark.parametrize(
    ("name", "values", "data"),
    [
        ("BOOL", [True, 0, 1], (True, False, True)),
        ("FP32", [1, 2.5], (1.0, 2.5)),
        ("BF16", [1], (1.0,)),
        ("INT8", [-1], (-1,)),
        ("UINT64", [2**63], (2**63,)),
        ("STRING", ["\u00fc", ""], ("\u00fc".encode(), b"")),
        ("INT8", [[1, [2]], 3], (1, 2, 3)),
    ],
)
def test_elements_of_every_type(tmp_path, name, values, data):
    (tensor,) = read(tmp_path, {"data": [{name: values}]}, EVERY_TYPE).samples[0].inputs
    datatype = "BYTES" if name == "STRING" else name
    assert (tensor.name, tensor.datatype, tensor.shape, tensor.data) == (name, datatype, (len(data),), data)
    assert [type(item) for item in tensor.data] == [type(item) for item in data]


@pytest.mark.parametrize(
    ("name", "value"),
    [("BOOL", "x"), ("BOOL", 1.0), ("FP32", "1"), ("INT8", 1.0), ("UINT64", "1"), ("STRING", 1), ("INT8", None)],
)
def test_elements_of_another_type_are_errors(tmp_path, name, value):
    datatype = "BYTES" if name == "STRING" else name
    with pytest.raises(InputError, match=f"{value!r} is not {datatype}"):
        read(tmp_path, {"data": [{name: [value]}]}, EVERY_TYPE)


@pytest.mark.parametrize(
    ("dims", "batch", "value", "expected"),
    [
        ([-1, -1], 0, [1, 2], "more than one variable dimension"),
        ([-1, -1], 0, {"content": [1, 2], "shape": [2, 1]}, (2, 1)),
        ([2], 0, {"content": [1, 2], "shape": [1, 2]}, "does not fit"),
        ([3], 0, {"content": [1, 2], "shape": [2]}, r"\[2\] does not fit \[3\] \("),
        ([2], 4, {"content": [1, 2], "shape": [1, 2]}, "does not fit .*omits the batch dimension"),
        ([2], 4, [1, 2], (1, 2)),
        ([-1, 2], 0, [1, 2, 3, 4], (2, 2)),
        ([-1, -1], 0, {"b64": "AQID", "shape": [3, 1]}, (3, 1)),
        ([2], 0, {"shape": [2]}, "must be a flat list"),
        ([2], 0, 5, "must be a flat list"),
        ([2], 0, {}, "'b64' is missing|b64"),
    ],
)
def test_shapes_of_samples(tmp_path, dims, batch, value, expected):
    entry = {"name": "IN", "data_type": "TYPE_INT8", "dims": dims}
    config = read_served_config({"max_batch_size": batch, "input": [entry]})
    content = {"data": [{"IN": value}]}
    if isinstance(expected, tuple):
        assert read(tmp_path, content, config).samples[0].inputs[0].shape == expected
    else:
        with pytest.raises(InputError, match=expected):
            read(tmp_path, content, config)


@pytest.mark.parametrize("kind", ["BOOL", "UINT8", "INT64", "FP16", "BF16", "FP64"])
def test_every_type_can_be_generated(kind):
    from envpack.server.tensors import encode

    config = read_served_config({"input": [{"name": "IN", "data_type": f"TYPE_{kind}", "dims": [-1, 3]}]})
    (question,) = generate_requests(config)
    (tensor,) = question.inputs
    assert tensor.shape == (1, 3)
    assert len(encode(kind, tensor.data)) % 3 == 0


@pytest.mark.parametrize(
    ("expected", "shape", "difference"),
    [
        ({"content": [1, 2, 3, 4, 5, 6], "shape": [2, 3]}, (1, 2, 3), ""),
        ({"content": [1, 2, 3, 4, 5, 6], "shape": [2, 3]}, (1, 3, 2), "OUT shape [1, 3, 2] instead of [1, 2, 3]"),
        ({"content": [1, 2, 3, 4, 5, 6], "shape": [2, 3]}, (6,), "OUT shape [6] instead of [1, 2, 3]"),
        ([1, 2, 3, 4, 5, 6], (1, 3, 2), ""),  # only its elements are expected
    ],
)
def test_a_shape_that_is_expected_is_compared(tmp_path, expected, shape, difference):
    served = {
        "max_batch_size": 8,
        "input": [{"name": "IN", "data_type": "TYPE_INT32", "dims": [1]}],
        "output": [{"name": "OUT", "data_type": "TYPE_INT32", "dims": [2, -1]}],
    }
    content = {"data": [{"IN": [1]}], "validation_data": [{"OUT": expected}]}
    samples = read(tmp_path, content, read_served_config(served))
    answer = (Tensor("OUT", "INT32", shape, (1, 2, 3, 4, 5, 6)),)
    assert samples.samples[0].difference((answer,), samples) == difference
