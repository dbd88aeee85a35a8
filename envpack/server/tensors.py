"""Tensors of the KServe protocol: values, encodings and comparison, without NumPy."""

from __future__ import annotations

import array
import math
import struct
import sys
from collections.abc import Sequence
from dataclasses import dataclass

Value = bool | int | float | bytes

_CODES = {
    "BOOL": "?",
    "UINT8": "B",
    "UINT16": "H",
    "UINT32": "I",
    "UINT64": "Q",
    "INT8": "b",
    "INT16": "h",
    "INT32": "i",
    "INT64": "q",
    "FP16": "e",
    "FP32": "f",
    "FP64": "d",
}
_LENGTH = struct.Struct("<I")
BINARY_ONLY = frozenset({"FP16", "BF16"})
DATATYPES = frozenset({*_CODES, "BF16", "BYTES"})
FLOATING = frozenset({"FP16", "BF16", "FP32", "FP64"})


@dataclass(frozen=True)
class Tensor:
    """A named tensor.

    Attributes:
        name: name of the input or output.
        datatype: KServe's name of the type, for example ``"FP32"`` or ``"BYTES"``.
        shape: dimensions.
        data: elements in row-major order; strings are ``bytes``.
    """

    name: str
    datatype: str
    shape: tuple[int, ...]
    data: tuple[Value, ...]

    @property
    def size(self) -> int:
        """Number of elements according to the shape."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class Tolerance:
    """Allowed deviation of a floating-point value from the expected one: ``atol + rtol * |expected|``."""

    rtol: float = 1e-5
    atol: float = 1e-8


def encode(datatype: str, data: Sequence[Value]) -> bytes:
    """Encode elements in KServe's binary form: little endian; each string follows its 4-byte length."""
    if datatype == "BYTES":
        items = [item if isinstance(item, bytes) else str(item).encode() for item in data]
        return b"".join(_LENGTH.pack(len(item)) + item for item in items)
    if datatype == "BF16":
        words = (struct.unpack("<I", struct.pack("<f", float(item)))[0] for item in data)
        return struct.pack(f"<{len(data)}H", *(_rounded_to_bf16(word) for word in words))
    return struct.pack(f"<{len(data)}{_CODES[datatype]}", *data)


def decode(datatype: str, raw: bytes) -> tuple[Value, ...]:
    """Decode KServe's binary form; the inverse of `encode`."""
    if datatype == "BYTES":
        return _decode_strings(raw)
    code = "H" if datatype == "BF16" else _CODES[datatype]
    width = struct.calcsize(f"<{code}")
    if len(raw) % width:
        raise ValueError(f"{len(raw)} bytes are not a whole number of {datatype} elements")
    if datatype == "BF16":
        words = struct.unpack(f"<{len(raw) // 2}H", raw)
        return struct.unpack(f"<{len(words)}f", struct.pack(f"<{len(words)}I", *(word << 16 for word in words)))
    if code in "fd" and sys.byteorder == "little":
        return tuple(array.array(code, raw))
    return struct.unpack(f"<{len(raw) // width}{code}", raw)


def difference(expected: Tensor, actual: Tensor, tolerance: Tolerance) -> str:
    """The first difference in one phrase, or ``""``.

    Floating-point elements may differ by the tolerance, and NaN equals NaN; all other elements must be equal.
    """
    if expected.datatype != actual.datatype:
        return f"type {actual.datatype} instead of {expected.datatype}"
    if len(expected.data) != len(actual.data):
        return f"{len(actual.data)} elements instead of {len(expected.data)}"
    floating = expected.datatype in FLOATING
    for index, (wanted, found) in enumerate(zip(expected.data, actual.data, strict=True)):
        equal = _is_close(float(wanted), float(found), tolerance) if floating else wanted == found
        if not equal:
            return f"element {index} is {_format(found)} instead of {_format(wanted)}"
    return ""


def _is_close(wanted: float, found: float, tolerance: Tolerance) -> bool:
    if math.isnan(wanted) or math.isnan(found):
        return math.isnan(wanted) and math.isnan(found)
    if math.isinf(wanted) or math.isinf(found):
        return wanted == found
    return abs(wanted - found) <= tolerance.atol + tolerance.rtol * abs(wanted)


def _format(value: Value) -> str:
    if isinstance(value, bytes):
        text = value.decode("utf-8", "backslashreplace")
        return repr(text if len(text) <= 60 else text[:57] + "...")
    return f"{value:.9g}" if isinstance(value, float) else str(value)


def _rounded_to_bf16(word: int) -> int:
    """Upper half of a float's bits, rounded to nearest even; NaN stays NaN."""
    if word & 0x7FFFFFFF > 0x7F800000:
        return (word >> 16) | 0x40
    return ((word + 0x7FFF + ((word >> 16) & 1)) >> 16) & 0xFFFF


def _decode_strings(raw: bytes) -> tuple[bytes, ...]:
    items = []
    at = 0
    while at < len(raw):
        if at + 4 > len(raw):
            raise ValueError("the length of a string is truncated")
        (length,) = _LENGTH.unpack_from(raw, at)
        at += 4
        if at + length > len(raw):
            raise ValueError("a string is truncated")
        items.append(raw[at : at + length])
        at += length
    return tuple(items)
