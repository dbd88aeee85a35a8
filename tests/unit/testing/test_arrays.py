"""Arrays, numbers and lists become tensors, and tensors arrays."""

import numpy as np
import pytest

from envpack.local import RawTensor
from envpack.server import encode
from envpack.support.errors import InputError
from envpack.testing import arrays
from envpack.testing.arrays import from_array, read_arrays, save_arrays, to_array

TYPES = ["BOOL", *(f"{sign}INT{bits}" for sign in ("", "U") for bits in (8, 16, 32, 64)), "FP16", "FP32", "FP64"]


@pytest.mark.parametrize("datatype", TYPES)
def test_lists_become_the_declared_type(datatype):
    tensor = from_array("X", [[0, 1, 1]], datatype)
    assert (tensor.datatype, tensor.shape) == (datatype, (1, 3))
    assert tensor.content == encode(datatype, (0, 1, 1))
    assert to_array(tensor).tolist() == [[0, 1, 1]]


def test_lists_of_strings():
    tensor = from_array("X", [["a", b"\xff"]], "BYTES")
    assert tensor == RawTensor("X", "BYTES", (1, 2), encode("BYTES", (b"a", b"\xff")))
    assert to_array(tensor).tolist() == [[b"a", b"\xff"]]


def test_bfloats_are_rounded_from_lists_and_taken_as_bits_from_arrays():
    tensor = from_array("X", [1.0, 3.14159], "BF16")
    assert tensor == RawTensor("X", "BF16", (2,), encode("BF16", (1.0, 3.14159)))
    assert from_array("X", to_array(tensor), "BF16") == tensor


def test_an_array_keeps_its_type():
    assert from_array("X", np.array([1], np.int32), "FP32").datatype == "INT32"


@pytest.mark.parametrize(
    ("values", "datatype"), [([[1], [1, 2]], "FP32"), (["a"], "INT8"), ([300], "UINT8"), ([-1], "UINT64")]
)
def test_what_fits_no_array_of_the_type_is_refused(values, datatype):
    with pytest.raises(InputError, match=f"^X: no array of {datatype}: ") as caught:
        from_array("X", values, datatype)
    assert caught.value.kind == "bad-input"


def test_what_a_small_archive_holds_is_limited_before_it_is_read(tmp_path, monkeypatch):
    np.savez_compressed(tmp_path / "x.npz", X=np.zeros(1 << 20, dtype=np.uint8))
    monkeypatch.setattr(arrays, "MOST_BYTES", 1 << 20)
    with pytest.raises(InputError, match="its arrays have 1048704 bytes, more than 1048576"):
        read_arrays(tmp_path / "x.npz")


def test_strings_that_numpy_would_shorten_are_not_saved(tmp_path):
    tensor = RawTensor("Y", "BYTES", (1,), encode("BYTES", (b"\xff\0",)))
    with pytest.raises(InputError, match="one ends with a zero byte"):
        save_arrays((tensor,), tmp_path / "y.npz")
    assert not list(tmp_path.iterdir())
