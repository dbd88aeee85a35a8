"""Warm-ups that a server refuses, or that end it, by their data."""

import struct

import pytest

from envpack.repository.config import parse_config
from envpack.repository.config_rules import warmup_faults
from tests.tables import every_row


def config(value, kind="FP32", declared="2"):
    return parse_config(
        f"""input {{ name: "X" data_type: TYPE_{kind} dims: [{declared}] }}
        model_warmup {{ name: "w" batch_size: 1 inputs {{ key: "X" value {{ data_type: TYPE_{kind} {value} }} }} }}""",
        "config.pbtxt",
    )


def strings(*values):
    return b"".join(struct.pack("<I", len(value)) + value for value in values)


@every_row(
    ("kind", "data", "fault"),
    [
        ("FP32", bytes(8), ""),
        ("FP32", bytes(80), ""),
        ("FP32", bytes(7), "has 7 bytes, and TYPE_FP32 [2] needs 8"),
        ("INT64", bytes(15), "has 15 bytes, and TYPE_INT64 [2] needs 16"),
        ("BOOL", b"", "has 0 bytes, and TYPE_BOOL [2] needs 2"),
        ("STRING", strings(b"", b"one"), ""),
        ("STRING", strings(b"one"), "is not what TYPE_STRING [2] needs: 2 strings, each behind its length in 4 bytes"),
        # A server of Triton 24.10 ends when it reads one of these.
        ("STRING", strings(b"one", b"two")[:-1], "is not what TYPE_STRING [2] needs"),
        ("STRING", strings(b"one", b"two") + b"x", "is not what TYPE_STRING [2] needs"),
        ("STRING", strings(b"one") + b"xy", "is not what TYPE_STRING [2] needs"),
        ("STRING", b"\xff\xff\xff\xff" * 2, "is not what TYPE_STRING [2] needs"),
    ],
)
def test_the_file_must_hold_what_the_tensor_needs(kind, data, fault, tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    (folder / "warmup").mkdir()
    (folder / "warmup/raw").write_bytes(data)
    found = list(warmup_faults(config('dims: [2] input_data_file: "raw"', kind), folder, is_complete=True))
    assert [text.startswith(f"the warm-up 'w' reads warmup/raw, which {fault}") for text in found] == [True] * bool(
        fault
    )


@pytest.mark.parametrize("name", ["none", "deep", "/etc/passwd", "x" * 300, "deep/" + "x" * 300])
def test_a_file_that_is_not_there(name, tmp_path):
    (tmp_path / "warmup/deep").mkdir(parents=True)
    (text,) = warmup_faults(config(f'dims: [2] input_data_file: "{name}"'), tmp_path, is_complete=False)
    assert text == f"the warm-up 'w' reads warmup/{name}, which does not exist"


@every_row(
    ("value", "declared", "fault"),
    [
        ("dims: [2] zero_data: true", "2", ""),
        ("dims: [5] random_data: true", "-1", ""),
        ("dims: [0] zero_data: true", "-1", ""),
        ("dims: [3] zero_data: true", "2", "has dims: [3] for the input 'X', and the model declares [2]"),
        ("dims: [1, 2] zero_data: true", "2", "has dims: [1, 2] for the input 'X', and the model declares [2]"),
        ("dims: [-1] zero_data: true", "-1", "leaves dims of the input 'X' variable, and needs the size of each"),
        ("dims: [2]", "2", "has no data for the input 'X': zero_data, random_data or input_data_file"),
    ],
)
def test_the_shape_and_the_source_of_the_data(value, declared, fault, tmp_path_factory):
    found = list(warmup_faults(config(value, declared=declared), tmp_path_factory.mktemp("model"), is_complete=True))
    assert found == ([f"the warm-up 'w' {fault}"] if fault else [])


def test_a_warmup_without_batch_size_is_not_sent(tmp_path):
    found = config('dims: [-1] input_data_file: "none"', declared="1")
    found.model_warmup[0].batch_size = 0
    assert list(warmup_faults(found, tmp_path, is_complete=True)) == []


BOTH = 'input { name: "X" data_type: TYPE_FP32 dims: [2] } input { name: "Y" data_type: TYPE_FP32 dims: [2] '


@every_row(
    ("names", "config", "fault"),
    [
        ("XZ", BOTH + "optional: true }", ""),  # a server hands Z on to the model
        ("Y", BOTH + "optional: true }", ""),  # it counts the inputs
        ("Z", BOTH + "optional: true }", "lacks the input 'X'"),
        ("X", BOTH + "}", "lacks the input 'Y'"),
        ("", "", ""),
        ("Z", "max_batch_size: 4", ""),
        ("", "max_batch_size: 4", "has no input, and so no batch dimension, and max_batch_size is 4"),
    ],
)
def test_the_inputs_are_enough(names, config, fault, tmp_path_factory):
    value = "data_type: TYPE_FP32 dims: [2] zero_data: true"
    inputs = " ".join(f'inputs {{ key: "{name}" value {{ {value} }} }}' for name in names)
    found = parse_config(f'{config} model_warmup {{ name: "w" batch_size: 1 {inputs} }}', "config.pbtxt")
    folder = tmp_path_factory.mktemp("model")
    assert list(warmup_faults(found, folder, is_complete=True)) == ([f"the warm-up 'w' {fault}"] if fault else [])


@pytest.mark.parametrize(
    ("batch", "largest", "fits"), [(0, 0, True), (1, 0, True), (2, 0, False), (4, 4, True), (5, 4, False)]
)
def test_the_batch_is_one_that_the_model_takes(batch, largest, fits, tmp_path):
    found = config("dims: [2] zero_data: true")
    found.max_batch_size, found.model_warmup[0].batch_size = largest, batch
    expected = f"the warm-up 'w' has batch_size: {batch}, and max_batch_size is {largest}"
    assert list(warmup_faults(found, tmp_path, is_complete=True)) == ([] if fits else [expected])
