"""What keeps a server from warming up a model; a Triton 24.10 server refuses, or ends, in each of these cases."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from envpack.repository.config import ModelConfig
from envpack.repository.folders import file_in, is_too_long
from envpack.support.bounded_reading import opened
from envpack.support.text import counted

_STRING = "TYPE_STRING"
_BYTES = {
    **dict.fromkeys(("TYPE_BOOL", "TYPE_UINT8", "TYPE_INT8"), 1),
    **dict.fromkeys(("TYPE_UINT16", "TYPE_INT16", "TYPE_FP16", "TYPE_BF16"), 2),
    **dict.fromkeys(("TYPE_UINT32", "TYPE_INT32", "TYPE_FP32"), 4),
    **dict.fromkeys(("TYPE_UINT64", "TYPE_INT64", "TYPE_FP64"), 8),
}
_MOST_STRINGS = 1 << 20  # that are counted


def warmup_faults(config: ModelConfig, folder: Path) -> Iterator[str]:
    """What is wrong with the warm-ups of a model with a complete configuration."""
    model: Any = config
    declared = {entry.name: entry for entry in model.input}
    for warmup in model.model_warmup:
        where = f"the warm-up {warmup.name!r}"
        if warmup.batch_size > max(model.max_batch_size, 1):
            yield f"{where} has batch_size: {warmup.batch_size}, and max_batch_size is {model.max_batch_size}"
        for name, value in warmup.inputs.items():
            if name not in declared:
                yield f"{where} has the input {name!r}, which the model does not declare"
                continue
            entry = declared[name]
            if value.data_type != entry.data_type:
                yield f"{where} has another data_type for the input {name!r} than the model declares"
            if -1 not in value.dims and not _fits(value.dims, entry.dims):
                dims = f"dims: {list(value.dims)} for the input {name!r}"
                yield f"{where} has {dims}, and the model declares {list(entry.dims)}"
        for name, entry in declared.items():
            if name not in warmup.inputs and not entry.optional:
                yield f"{where} lacks the input {name!r}"
    yield from warmup_data_faults(config, folder)


def warmup_data_faults(config: ModelConfig, folder: Path) -> Iterator[str]:
    """What is wrong with the data of warm-ups, whatever the inputs of the model are."""
    model: Any = config
    for warmup in model.model_warmup:
        where = f"the warm-up {warmup.name!r}"
        for name, value in warmup.inputs.items():
            if -1 in value.dims:
                yield f"{where} leaves dims of the input {name!r} variable, and needs the size of each"
            elif value.WhichOneof("input_data_type") is None:
                yield f"{where} has no data for the input {name!r}: zero_data, random_data or input_data_file"
            elif value.input_data_file and (fault := _file_fault(value, folder / "warmup")):
                yield f"{where} reads warmup/{value.input_data_file}, which {fault}"


def _file_fault(value: Any, folder: Path) -> str:
    name = value.input_data_file
    if is_too_long(name) or not (file := file_in(folder, name)).is_file():
        return "does not exist"
    kind = value.DESCRIPTOR.fields_by_name["data_type"].enum_type.values_by_number[value.data_type].name
    elements = math.prod(value.dims)
    tensor = f"{kind} {list(value.dims)} needs"
    if kind == _STRING:
        fits = elements > _MOST_STRINGS or _holds_strings(file, elements)
        return "" if fits else f"is not what {tensor}: {counted(elements, 'string')}, each behind its length in 4 bytes"
    size, needed = file.stat().st_size, elements * _BYTES.get(kind, 0)
    return f"has {size} bytes, and {tensor} {needed}" if size < needed else ""


def _fits(dims: Sequence[int], declared: Sequence[int]) -> bool:
    return len(dims) == len(declared) and all(own in (size, -1) for size, own in zip(dims, declared, strict=True))


def _holds_strings(file: Path, count: int) -> bool:
    """Whether a file consists of so many strings, each behind its length."""
    size, at = file.stat().st_size, 0
    with opened(file) as content:
        for _ in range(count):
            content.seek(at)
            length = content.read(4)
            if len(length) < 4:
                return False
            at += 4 + int(struct.unpack("<I", length)[0])
    return at == size
