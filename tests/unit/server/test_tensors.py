import struct

import pytest
from hypothesis import given, strategies as st

from envpack.server.tensors import Tensor, Tolerance, decode, difference, encode


@given(st.lists(st.binary(max_size=20), max_size=8))
def test_strings_round_trip(items):
    assert decode("BYTES", encode("BYTES", items)) == tuple(items)


@pytest.mark.parametrize(
    ("datatype", "data"),
    [
        ("BOOL", (True, False)),
        ("INT8", (-128, 127)),
        ("UINT64", (0, 2**64 - 1)),
        ("FP16", (1.0, -0.5)),
        ("BF16", (1.0, -2.5)),
        ("FP32", (1.5, float("inf"))),
        ("FP64", (0.1, -1e300)),
    ],
)
def test_numbers_round_trip(datatype, data):
    assert decode(datatype, encode(datatype, data)) == data


def test_bf16_rounds_to_nearest_even():
    between = struct.unpack("<f", struct.pack("<I", 0x3F808000))[0]
    above = struct.unpack("<f", struct.pack("<I", 0x3F818000))[0]
    assert encode("BF16", [between, above]) == bytes.fromhex("803f823f")


def test_nan_stays_nan_in_bf16():
    for bits in (0x7F800001, 0x7FC00000, 0xFF800001, 0xFFFFFFFF):
        (found,) = decode("BF16", encode("BF16", struct.unpack("<f", struct.pack("<I", bits))))
        assert found != found
    assert encode("BF16", [float("inf"), float("-inf")]) == bytes.fromhex("807f80ff")


@pytest.mark.parametrize(("datatype", "raw"), [("FP32", b"123"), ("BYTES", b"\1\0"), ("BYTES", b"\5\0\0\0ab")])
def test_truncated_bytes_are_rejected(datatype, raw):
    with pytest.raises(ValueError, match=r"truncated|whole number"):
        decode(datatype, raw)


def tensor(*data, datatype="FP32"):
    return Tensor("OUT", datatype, (len(data),), data)


@pytest.mark.parametrize(
    ("expected", "actual", "message"),
    [
        (tensor(1.0), tensor(1.000001), ""),
        (tensor(1.0), tensor(1.1), "element 0 is 1.1 instead of 1"),
        (tensor(float("nan")), tensor(float("nan")), ""),
        (tensor(float("inf")), tensor(1.0), "element 0 is 1 instead of inf"),
        (tensor(1.0), tensor(), "0 elements instead of 1"),
        (tensor(1, datatype="INT32"), tensor(1.0), "type FP32 instead of INT32"),
        (tensor(3, datatype="INT32"), tensor(4, datatype="INT32"), "element 0 is 4 instead of 3"),
        (tensor(float("inf")), tensor(float("inf")), ""),
        (tensor(float("inf")), tensor(float("-inf")), "element 0 is -inf instead of inf"),
        (tensor(b"cat", datatype="BYTES"), tensor(b"car", datatype="BYTES"), "element 0 is 'car' instead of 'cat'"),
        (
            tensor(b"x" * 60, datatype="BYTES"),
            tensor(b"", datatype="BYTES"),
            f"element 0 is '' instead of '{'x' * 60}'",
        ),
        (
            tensor(b"x" * 61, datatype="BYTES"),
            tensor(b"", datatype="BYTES"),
            f"element 0 is '' instead of '{'x' * 57}...'",
        ),
        (tensor(b"a", datatype="BYTES"), tensor(b"\xff", datatype="BYTES"), r"element 0 is '\\xff' instead of 'a'"),
    ],
)
def test_a_difference_is_one_phrase(expected, actual, message):
    assert difference(expected, actual, Tolerance()) == message


@pytest.mark.parametrize("datatype", ["FP16", "BF16", "FP32", "FP64"])
def test_every_floating_point_type_has_a_tolerance(datatype):
    near = tensor(1.000001, datatype=datatype)
    assert difference(tensor(1.0, datatype=datatype), near, Tolerance()) == ""


def test_the_tolerance_is_relative_and_absolute():
    assert not difference(tensor(100.0), tensor(101.0), Tolerance(rtol=0.01, atol=0))
    assert not difference(tensor(0.0), tensor(0.5), Tolerance(rtol=0, atol=0.5))


def test_no_tolerance_takes_an_infinite_element_for_a_finite_one():
    found = difference(tensor(1e308, datatype="FP64"), tensor(float("inf"), datatype="FP64"), Tolerance(rtol=10.0))
    assert found == "element 0 is inf instead of 1e+308"
