"""Arrays, numbers and lists become tensors, and tensors arrays."""

import importlib.util
import os
import sys

import numpy as np
import pytest

from envpack.local.values import RawTensor
from envpack.server.tensors import encode
from envpack.support.errors import InputError
from envpack.support.installation import install_beside
from envpack.testing import model
from envpack.testing.model import check_can_save, from_array, read_arrays, save_arrays, to_array

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
    assert from_array("X", [1, 2]).shape == (2,)


@pytest.mark.parametrize(
    ("values", "datatype"), [([[1], [1, 2]], "FP32"), (["a"], "INT8"), ([300], "UINT8"), ([-1], "UINT64")]
)
def test_what_fits_no_array_of_the_type_is_refused(values, datatype):
    with pytest.raises(InputError, match=f"^X: no array of {datatype}: ") as caught:
        from_array("X", values, datatype)
    assert caught.value.kind == "bad-input"


def test_what_a_small_archive_holds_is_limited_before_it_is_read(tmp_path, monkeypatch):
    np.savez_compressed(tmp_path / "x.npz", X=np.zeros(1 << 20, dtype=np.uint8))
    monkeypatch.setattr(model, "MOST_BYTES", 1 << 20)
    with pytest.raises(InputError, match="its arrays have 1048704 bytes, more than 1048576"):
        read_arrays(tmp_path / "x.npz")


def test_strings_that_numpy_would_shorten_are_not_saved(tmp_path):
    tensor = RawTensor("Y", "BYTES", (1,), encode("BYTES", (b"\xff\0",)))
    with pytest.raises(InputError, match="one ends with a zero byte"):
        save_arrays((tensor,), tmp_path / "y.npz")
    assert not list(tmp_path.iterdir())


def test_without_numpy_the_package_is_named(monkeypatch, tmp_path):
    tensor = RawTensor("Y", "INT32", (1,), encode("INT32", (1,)))
    find = importlib.util.find_spec
    monkeypatch.setattr(model.importlib.util, "find_spec", lambda name: None if name == "numpy" else find(name))
    with pytest.raises(InputError) as raised:
        check_can_save(tmp_path / "y.npz")
    assert raised.value.where == str(tmp_path / "y.npz")
    monkeypatch.setitem(sys.modules, "numpy", None)
    for use, where in (
        (lambda: to_array(tensor), "Y"),
        (lambda: from_array("X", [1], "INT32"), "X"),
        (lambda: read_arrays(tmp_path / "x.npy"), str(tmp_path / "x.npy")),
        (lambda: save_arrays((tensor,), tmp_path / "y.npz"), str(tmp_path / "y.npz")),
    ):
        with pytest.raises(InputError) as raised:
            use()
        error = raised.value
        assert (error.kind, error.where, error.hint) == ("bad-input", where, install_beside("numpy"))
        assert error.message == "arrays need NumPy beside envpack"


def test_a_file_of_arrays_is_read_by_name(tmp_path):
    np.savez(tmp_path / "x.npz", A=np.array([1, 2]), B=np.array([3.5]))
    np.save(tmp_path / "x.npy", np.array([4]))
    assert {name: array.tolist() for name, array in read_arrays(tmp_path / "x.npz").items()} == {
        "A": [1, 2],
        "B": [3.5],
    }
    assert {name: array.tolist() for name, array in read_arrays(tmp_path / "x.npy").items()} == {"": [4]}


def test_arrays_that_do_not_fit_into_the_memory_are_named(tmp_path, monkeypatch):
    np.save(tmp_path / "x.npy", np.zeros(3))

    def load(*_, **__):
        raise MemoryError("Unable to allocate 8 TiB")

    monkeypatch.setattr(np, "load", load)
    with pytest.raises(InputError) as raised:
        read_arrays(tmp_path / "x.npy")
    error = raised.value
    assert (error.kind, error.where) == ("bad-input", str(tmp_path / "x.npy"))
    assert error.message == "cannot be read: there is not enough memory: Unable to allocate 8 TiB"


@pytest.mark.parametrize("content", [b"", b"noise", b"PK\x03\x04half", b"\x93NUMPY\x01\x00"])
def test_a_file_that_holds_no_arrays_is_named(tmp_path, content):
    (tmp_path / "x.npy").write_bytes(content)
    for file in (tmp_path / "x.npy", tmp_path / "none.npy"):
        with pytest.raises(InputError) as raised:
            read_arrays(file)
        error = raised.value
        assert (error.kind, error.where) == ("bad-input", str(file))
        assert error.message.startswith("cannot be read: ")
        assert error.hint == "it must be an array that numpy.save wrote"


def test_pickled_arrays_are_not_read(tmp_path):
    np.savez(tmp_path / "x.npz", np.array(["a"], dtype=object))
    with pytest.raises(InputError, match="it holds Python objects") as raised:
        read_arrays(tmp_path / "x.npz")
    assert raised.value.hint == "save strings as array.astype('S') or array.astype('U')"
    np.save(tmp_path / "x.npy", np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(InputError, match="cannot be read"):
        read_arrays(tmp_path / "x.npy")


@pytest.mark.parametrize(
    "array",
    [np.array([1j]), np.array(["2020-01-01"], "M8[D]"), np.array([1], np.longdouble)],
    ids=lambda a: str(a.dtype),
)
def test_arrays_that_no_model_takes_are_refused(array):
    with pytest.raises(InputError) as raised:
        from_array("X", array)
    error = raised.value
    assert (error.where, error.message) == ("X", f"arrays of {array.dtype} fit no type of a model")
    assert error.hint == "convert the array"


def test_strings_become_bytes():
    for array in (np.array(["é"]), np.array([b"\xff"]), np.array(["é"], dtype=object)):
        assert from_array("X", array).datatype == "BYTES"
    assert to_array(from_array("X", np.array([["é", "b"]]))).tolist() == [["é".encode(), b"b"]]


def test_arrays_in_another_order_of_bytes_are_converted():
    assert bytes(from_array("X", np.array([1, 2], ">i4")).content) == encode("INT32", (1, 2))
    assert bytes(from_array("X", np.array([[1, 2], [3, 4]], np.int32).T).content) == encode("INT32", (1, 3, 2, 4))


def test_bits_are_a_bfloat_only_if_the_model_takes_one():
    bits = np.array([0x3F80], np.uint16)
    assert from_array("X", bits, "BF16").datatype == "BF16"
    assert from_array("X", bits, "UINT16").datatype == from_array("X", bits).datatype == "UINT16"


def test_a_pipe_is_written_to_and_a_link_stays(tmp_path):
    """Root would replace /dev/null by a file."""
    numbers = RawTensor("N", "FP32", (2,), encode("FP32", (1.5, 2.5)))
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link.npz").symlink_to("real.npz")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    for name in ("pipe", "link.npz"):
        check_can_save(tmp_path / name)
        save_arrays((numbers,), tmp_path / name)
    (tmp_path / "piped.npz").write_bytes(os.read(reader, 1 << 16))
    os.close(reader)
    assert (tmp_path / "link.npz").is_symlink()
    for name in ("piped.npz", "real.npz"):
        assert read_arrays(tmp_path / name)["N"].tolist() == [1.5, 2.5]


def test_what_is_saved_can_be_read_without_pickle(tmp_path):
    strings = RawTensor("S", "BYTES", (2,), encode("BYTES", (b"a", b"bc")))
    numbers = RawTensor("N", "FP32", (1, 2), encode("FP32", (1.5, 2.5)))
    save_arrays((strings, numbers), tmp_path / "y.npz")
    found = read_arrays(tmp_path / "y.npz")
    assert (found["S"].tolist(), found["N"].tolist()) == ([b"a", b"bc"], [[1.5, 2.5]])
    with pytest.raises(InputError) as raised:
        save_arrays((numbers,), tmp_path / "none/y.npz")
    assert raised.value.message == "cannot be written: No such file or directory"
