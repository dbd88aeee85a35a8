"""Tensors of the KServe protocol, without NumPy: values, encodings, comparison, and what a served model declares."""

from __future__ import annotations

import array
import math
import struct
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from envpack.repository.config_rules import kserve_type

Value = bool | int | float | bytes

# The types whose elements `struct` packs, in the order of Triton's numbers for them.
CODES = {
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
FLOATING = frozenset({"FP16", "BF16", "FP32", "FP64"})


@dataclass(frozen=True)
class Tensor:
    """A named tensor."""

    name: str  # name of the input or output
    datatype: str  # KServe's name of the type, for example ``"FP32"`` or ``"BYTES"``
    shape: tuple[int, ...]  # dimensions
    data: tuple[Value, ...]  # elements in row-major order; strings are ``bytes``

    @property
    def size(self) -> int:
        """Number of elements according to the shape."""
        return math.prod(self.shape)

    @property
    def size_fault(self) -> str:
        """How its elements differ in number from those of its shape, ``""`` if they do not."""
        if len(self.data) == self.size:
            return ""
        return f"the output {self.name} has {len(self.data)} elements, and the shape {list(self.shape)}"


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
    return struct.pack(f"<{len(data)}{CODES[datatype]}", *data)


def decode(datatype: str, raw: bytes) -> tuple[Value, ...]:
    """Decode KServe's binary form; the inverse of `encode`."""
    if datatype == "BYTES":
        return _decode_strings(raw)
    code = "H" if datatype == "BF16" else CODES[datatype]
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
    """The first difference in one phrase, or ``""``; a shape counts if it is expected, and NaN equals NaN."""
    if expected.datatype != actual.datatype:
        return f"type {actual.datatype} instead of {expected.datatype}"
    if len(expected.data) != len(actual.data):
        return f"{len(actual.data)} elements instead of {len(expected.data)}"
    if expected.shape and expected.shape != actual.shape:
        return f"shape {list(actual.shape)} instead of {list(expected.shape)}"
    if expected.data == actual.data:  # as most are, and found so much faster
        return ""
    floating = expected.datatype in FLOATING
    for index, (wanted, found) in enumerate(zip(expected.data, actual.data, strict=True)):
        equal = _is_close(float(wanted), float(found), tolerance) if floating else wanted == found
        if not equal:
            return f"element {index} is {_format(found)} instead of {_format(wanted)}"
    return ""


def _is_close(wanted: float, found: float, tolerance: Tolerance) -> bool:
    if wanted == found or (math.isnan(wanted) and math.isnan(found)):
        return True
    gap = abs(wanted - found)
    return math.isfinite(gap) and gap <= tolerance.atol + tolerance.rtol * abs(wanted)


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


@dataclass(frozen=True)
class TensorConfig:
    """An input or output of a model."""

    name: str  # name of the tensor
    datatype: str  # KServe's name of the type, for example ``"FP32"``
    dims: tuple[int, ...]  # dimensions in requests, including the batch dimension; -1 is any size
    optional: bool = False  # whether a request can omit it


@dataclass(frozen=True, kw_only=True)
class ServedConfig:
    """The parts of a model's configuration that determine its requests and responses."""

    inputs: tuple[TensorConfig, ...]  # inputs, in order
    outputs: tuple[TensorConfig, ...]  # outputs, in order
    largest_batch: int  # maximum number of items in a request; 0 if the first dimension is not a batch
    decoupled: bool  # whether a request can have any number of responses (plain inference is then not available)
    sequence: bool  # whether requests belong to sequences
    instances: int  # number of model instances
    merges: bool = False  # whether the server merges requests that wait into one batch (``dynamic_batching``)
    ragged: bool = False  # whether it merges also requests with inputs of other lengths (``allow_ragged_batch``)
    # Whether the server may refuse requests that wait: a policy limits their number or their time.
    refuses: bool = False
    # Whether a sequence is one request, which the model has scheduled again until it is answered.
    iterative: bool = False
    # Whether the server fills a batch of sequences up with requests of none (strategy ``direct``).
    fills_up: bool = False
    # How many sequences the model answers at the same time, 0 without sequences; further ones wait until one has ended.
    sequences_at_once: int = 0

    @property
    def in_sequences(self) -> bool:
        """Whether clients say to which sequence a request belongs; the server does it for iterative ones."""
        return self.sequence and not self.iterative

    @property
    def batched(self) -> bool:
        """Whether the first dimension is a batch."""
        return self.largest_batch > 0


def read_served_config(config: Mapping[str, Any]) -> ServedConfig:
    """Read the response to ``GET /v2/models/<name>/config``: the JSON form of Triton's ModelConfig."""
    largest_batch = int(config.get("max_batch_size", 0))
    batched = largest_batch > 0
    groups, batching = config.get("instance_group", ()), config.get("dynamic_batching", {})
    instances = sum(int(group.get("count", 1)) * max(1, len(group.get("gpus", ()))) for group in groups)
    return ServedConfig(
        inputs=tuple(_tensor(entry, batched=batched) for entry in config.get("input", ())),
        outputs=tuple(_tensor(entry, batched=batched) for entry in config.get("output", ())),
        largest_batch=largest_batch,
        decoupled=bool(config.get("model_transaction_policy", {}).get("decoupled", False)),
        sequence="sequence_batching" in config,
        instances=instances,
        merges="dynamic_batching" in config,
        ragged=any(entry.get("allow_ragged_batch") for entry in config.get("input", ())),
        refuses=any(value for name, value in batching.items() if name.endswith("queue_policy")),
        iterative=bool(config.get("sequence_batching", {}).get("iterative_sequence", False)),
        fills_up="sequence_batching" in config and "oldest" not in config["sequence_batching"],
        sequences_at_once=_sequences_at_once(config, max(largest_batch, 1)) * max(instances, 1),
    )


def _sequences_at_once(config: Mapping[str, Any], slots: int) -> int:
    """How many sequences an instance answers: as many as a batch has items, unless the configuration says otherwise."""
    if "sequence_batching" not in config:
        return 0
    return int(config["sequence_batching"].get("oldest", {}).get("max_candidate_sequences", 0)) or slots


def _tensor(entry: Mapping[str, Any], *, batched: bool) -> TensorConfig:
    dims = tuple(int(dim) for dim in entry["dims"])
    return TensorConfig(
        entry["name"],
        kserve_type(str(entry["data_type"])),
        (-1, *dims) if batched else dims,
        bool(entry.get("optional", False)),
    )
