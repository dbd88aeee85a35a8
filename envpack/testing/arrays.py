"""Tensors as NumPy arrays. NumPy is optional, so it is imported inside functions."""

from __future__ import annotations

import importlib.util
import os
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from envpack.local.values import RawTensor
from envpack.server.tensors import decode, encode
from envpack.support.bounded_reading import opened
from envpack.support.errors import InputError
from envpack.support.replacement import replaced_file

_TYPES = {
    "BOOL": "?",
    "UINT8": "<u1",
    "UINT16": "<u2",
    "UINT32": "<u4",
    "UINT64": "<u8",
    "INT8": "<i1",
    "INT16": "<i2",
    "INT32": "<i4",
    "INT64": "<i8",
    "FP16": "<f2",
    "FP32": "<f4",
    "FP64": "<f8",
    "BF16": "<u2",  # NumPy has no such type: the bits
}
MOST_BYTES = 2 << 30  # of one file
# What numpy.load raises for damaged files, and for archives with a password.
_DAMAGED = (ValueError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error)
_KINDS = {"b": "BOOL", "u": "UINT", "i": "INT", "f": "FP"}


def from_array(name: str, array: Any, datatype: str = "") -> RawTensor:
    """A tensor from an array; arrays of strings, bytes and objects become BYTES."""
    if not hasattr(array, "dtype"):
        array = _converted(name, array, datatype)
        if datatype == "BF16":
            return RawTensor(name, datatype, array.shape, encode(datatype, array.ravel().tolist()))
    if array.dtype.kind in "SUO":
        elements = [item if isinstance(item, bytes) else str(item).encode() for item in array.ravel().tolist()]
        return RawTensor(name, "BYTES", array.shape, encode("BYTES", elements))
    kind = _KINDS.get(array.dtype.kind, "")
    own = kind if kind in ("", "BOOL") else f"{kind}{array.itemsize * 8}"
    if own not in _TYPES:
        raise _bad(name, f"arrays of {array.dtype} fit no type of a model", "convert the array")
    content = array.astype(_TYPES[own], order="C", copy=False).tobytes()
    return RawTensor(name, "BF16" if (own, datatype) == ("UINT16", "BF16") else own, array.shape, content)


def _converted(name: str, values: Any, datatype: str) -> Any:
    """Numbers or lists as an array; BF16 as floats."""
    numpy = _numpy(name)
    types = {**_TYPES, "BYTES": object, "BF16": "<f4", "": None}
    try:
        return numpy.asarray(values, dtype=types[datatype])
    except (ValueError, TypeError, OverflowError) as error:
        raise _bad(name, f"no array of {datatype}: {error}", "correct the values") from error


def to_array(tensor: RawTensor) -> Any:
    """A tensor as an array; BYTES as an array of bytes objects, BF16 as its bits."""
    numpy = _numpy(tensor.name)
    if tensor.datatype == "BYTES":
        array = numpy.empty(tensor.size, dtype=object)
        array[:] = decode("BYTES", bytes(tensor.content))
        return array.reshape(tensor.shape)
    return numpy.frombuffer(tensor.content, dtype=_TYPES[tensor.datatype]).reshape(tensor.shape)


def read_arrays(file: Path) -> dict[str, Any]:
    """The arrays of an ``.npz`` file by name, or that of an ``.npy`` file under ``""``.

    Nothing in it is run, and no more than `MOST_BYTES` are read from an archive, after decompression.
    """
    numpy = _numpy(str(file))
    hint = "it must be an array that numpy.save wrote"
    try:
        with opened(file) as content:
            loaded = numpy.load(content, allow_pickle=False)
            if not isinstance(loaded, Mapping):
                return {"": loaded}
            size = sum(entry.file_size for entry in loaded.zip.infolist())  # type: ignore[attr-defined]
            if size > MOST_BYTES:
                raise _bad(str(file), f"cannot be read: its arrays have {size} bytes, more than {MOST_BYTES}", hint)
            return dict(loaded)
    except OSError as error:
        raise _bad(str(file), f"cannot be read: {error.strerror or error}", hint) from error
    except MemoryError as error:
        raise _bad(str(file), f"cannot be read: there is not enough memory: {error}", hint) from error
    except _DAMAGED as error:
        raise _bad(str(file), f"cannot be read: {error}", hint) from error


def check_can_save(file: Path) -> None:
    """Refuse a file that `save_arrays` cannot write, before what is to be saved takes minutes to make."""
    if importlib.util.find_spec("numpy") is None:
        raise _without_numpy(str(file))
    folder = file.absolute().parent
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        reason = "its folder may not be written to" if folder.is_dir() else "its folder does not exist"
        raise _bad(str(file), f"cannot be written: {reason}", "give another file")


def save_arrays(tensors: tuple[RawTensor, ...], file: Path) -> None:
    """Write tensors as ``.npz``."""
    numpy = _numpy(str(file))
    arrays = {tensor.name: to_array(tensor) for tensor in tensors}
    # Strings as NumPy's own type, which can be read without pickle.
    plain = {name: _strings(name, array) if array.dtype == object else array for name, array in arrays.items()}
    try:
        with replaced_file(file) as temporary, temporary.open("wb") as stream:
            numpy.savez(stream, **plain)
    except OSError as error:
        raise _bad(str(file), f"cannot be written: {error.strerror}", "give another file") from error


def _strings(name: str, array: Any) -> Any:
    if any(element.endswith(b"\0") for element in array.flat):
        text = "its strings cannot be saved: one ends with a zero byte, which NumPy removes"
        raise _bad(name, text, "use --json instead of --output")
    return array.astype("S")


def _numpy(where: str) -> Any:
    try:
        import numpy
    except ImportError:
        raise _without_numpy(where) from None
    return numpy


def _without_numpy(where: str) -> InputError:
    return _bad(where, "arrays need NumPy beside envpack", "pip install numpy")


def _bad(where: str, reason: str, hint: str) -> InputError:
    return InputError("bad-input", reason, hint, where)
