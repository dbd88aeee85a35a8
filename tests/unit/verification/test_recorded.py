"""What `envpack run --save-sample` writes is read as what was sent and answered."""

import json
import math

import pytest

from envpack.server.tensors import Tensor, read_served_config
from envpack.support.errors import InputError
from envpack.verification.samples import add_samples, read_samples
from tests.tables import every_row


def config(datatype="TYPE_FP32", dims=(-1,), **more):
    tensor = {"data_type": datatype, "dims": list(dims)}
    return read_served_config({"input": [{"name": "X", **tensor}], "output": [{"name": "Y", **tensor}], **more})


def tensors(datatype, *data, shape=None):
    return tuple((Tensor(name, datatype, shape or (len(data),), data),) for name in "XY")


DECOUPLED = {"model_transaction_policy": {"decoupled": True}}
MATRIX = {"shape": (2, 3)}
# A configuration, the type and elements of a tensor, and how it stands in the file.
TENSORS = {
    "floats": (config(), tensors("FP32", 1.5, -0.0), [1.5, -0.0]),
    "no element": (config(), tensors("FP32"), []),
    "not finite": (config(), tensors("FP32", math.nan, math.inf), {"b64": "AADAfwAAgH8="}),
    "halves": (config("TYPE_FP16"), tensors("FP16", 0.5), [0.5]),
    "large integers": (config("TYPE_UINT64"), tensors("UINT64", (1 << 64) - 1), [(1 << 64) - 1]),
    "booleans": (config("TYPE_BOOL"), tensors("BOOL", True, False), [True, False]),
    "text": (config("TYPE_STRING"), tensors("BYTES", "é".encode(), b""), ["é", ""]),
    "a file": (config("TYPE_STRING"), tensors("BYTES", b"\xff"), {"b64": "/w=="}),
    "files": (config("TYPE_STRING"), tensors("BYTES", b"\xff", b"a"), [{"b64": "/w=="}, "a"]),
    "a batch of one": (config(max_batch_size=4), tensors("FP32", 1.0, 2.0, shape=(1, 2)), [1.0, 2.0]),
    "a fixed shape": (config(dims=(2, 3)), tensors("FP32", *map(float, range(6)), **MATRIX), [*map(float, range(6))]),
    "two variable dimensions": (
        config(dims=(-1, -1)),
        tensors("FP32", *map(float, range(6)), **MATRIX),
        {"content": [*map(float, range(6))], "shape": [2, 3]},
    ),
}


@every_row("name", TENSORS)
def test_every_tensor_is_read_as_it_was(name, tmp_path_factory):
    served, (inputs, outputs), written = TENSORS[name]
    file = tmp_path_factory.mktemp("model") / "envpack/smoke.json"
    assert add_samples(file, served, [(inputs, (outputs,))]) == 1
    assert json.loads(file.read_text(), parse_constant=pytest.fail)["data"] == [{"X": written}]
    (sample,) = read_samples(file, served).samples
    assert [repr(tensor) for tensor in sample.inputs] == [repr(tensor) for tensor in inputs]
    known = [(tensor.name, tensor.datatype, repr(tensor.data)) for tensor in outputs]
    assert [(tensor.name, tensor.datatype, repr(tensor.data)) for tensor in sample.expected[0]] == known
    assert sample.difference((outputs,), read_samples(file, served)) == ""


def test_many_numbers_are_written_in_base64(tmp_path):
    file, (inputs, outputs) = tmp_path / "smoke.json", tensors("FP32", *map(float, range(1000)))
    add_samples(file, config(), [(inputs, (outputs,))])
    assert file.stat().st_size < 12_000
    assert read_samples(file, config()).samples[0].inputs == inputs


def test_streams_are_lists(tmp_path):
    file, (inputs, output) = tmp_path / "smoke.json", tensors("FP32", 1.0)
    answers = [(inputs, (output, output)), (tensors("FP32", 2.0)[0], ())]
    assert add_samples(file, config(**DECOUPLED), answers) == 2
    samples = read_samples(file, config(**DECOUPLED))
    assert [len(sample.expected) for sample in samples.samples] == [2, 0]
    assert samples.samples[0].difference((output, output), samples) == ""


def test_samples_are_added_and_the_same_request_is_replaced(tmp_path):
    file = tmp_path / "smoke.json"
    file.write_text('{"data": [{"X": [1]}, {"X": [2]}], "envpack": {"noun": "numbers"}}')
    answers = [(tensors("FP32", number)[0], (tensors("FP32", number * 10)[1],)) for number in (2.0, 3.0)]
    assert add_samples(file, config(), answers) == 3
    assert json.loads(file.read_text()) == {
        "data": [{"X": [1]}, {"X": [2]}, {"X": [3.0]}],
        "envpack": {"noun": "numbers"},
        "validation_data": [{}, {"Y": [20.0]}, {"Y": [30.0]}],
    }


# What cannot be saved: a configuration, the input, the output, and a part of the error.
UNSAVABLE = {
    "a sequence": (config(sequence_batching={}), *tensors("FP32", 1.0), "the requests belong to sequences"),
    "a batch": (config(max_batch_size=4), *tensors("FP32", 1.0, shape=(2, 1)), "a batch of several was sent"),
    "another shape": (config(dims=(1,)), tensors("FP32", 1.0)[0], tensors("FP32", 1.0, 2.0)[1], "is no sample: valid"),
    "the text of an error": (
        config("TYPE_STRING"),
        *tensors("BYTES", b'{"error": "no image"}'),
        "not saved: the text of Y reports an error: no image",
    ),
}


@every_row("name", UNSAVABLE)
def test_what_is_no_sample_leaves_the_file_as_it_was(name, tmp_path_factory):
    served, inputs, output, reason = UNSAVABLE[name]
    file = tmp_path_factory.mktemp("model") / "smoke.json"
    with pytest.raises(InputError, match=reason) as raised:
        add_samples(file, served, [(inputs, (output,))])
    assert (raised.value.kind, raised.value.where) == ("bad-input", str(file))
    assert list(file.parent.iterdir()) == []


def test_a_damaged_file_is_not_replaced(tmp_path):
    file, (inputs, output) = tmp_path / "smoke.json", tensors("FP32", 1.0)
    file.write_text('{"data": 3}')
    with pytest.raises(InputError, match="data must be a list"):
        add_samples(file, config(), [(inputs, (output,))])
    assert file.read_text() == '{"data": 3}'


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "envpack").touch()
    with pytest.raises(InputError, match="cannot be written: File exists") as raised:
        add_samples(tmp_path / "envpack/smoke.json", config(), [(tensors("FP32", 1.0)[0], ((),))])
    assert raised.value.kind == "bad-samples"
