"""Adds a request and its answer to a model's samples."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from envpack.server import FLOATING, ServedConfig, Tensor, TensorConfig, Value, encode
from envpack.support.bounded_reading import read_json
from envpack.support.errors import InputError
from envpack.support.replacement import replaced_file
from envpack.verification.answers import Responses
from envpack.verification.samples import read_samples

_MOST_LISTED = 256  # elements; more are written in base64


def add_samples(file: Path, config: ServedConfig, answered: Sequence[tuple[Sequence[Tensor], Responses]]) -> int:
    """Add samples to a file in perf_analyzer's format, which need not exist; one with the same inputs is replaced.

    Returns the number of samples in the file.
    """
    if config.in_sequences:
        raise _unsavable(file, "the requests belong to sequences, which are not saved")
    if config.batched and any(tensor.shape[:1] != (1,) for inputs, _ in answered for tensor in inputs):
        raise _unsavable(file, "a sample has one item, and a batch of several was sent")
    content: dict[str, Any] = {"data": [], "validation_data": []}
    if file.exists():
        read_samples(file, config)  # what is wrong with it is an error of its own
        content = read_json(file)
    data = content["data"]
    answers = content.setdefault("validation_data", [{} for _ in data])
    for inputs, responses in answered:
        entry = _entry(inputs, config.inputs, config)
        found = [_entry(response, config.outputs, config) for response in responses]
        answer = found if config.decoupled else found[0]
        if entry in data:
            answers[data.index(entry)] = answer
        else:
            data.append(entry)
            answers.append(answer)
    _write(file, json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n", config)
    return len(data)


def _write(file: Path, text: str, config: ServedConfig) -> None:
    """Replace the file by samples that can be read."""
    try:
        file.parent.mkdir(exist_ok=True)
        with replaced_file(file, keep=True) as temporary:
            temporary.write_text(text, encoding="utf-8")
            read_samples(temporary, config)
    except OSError as error:
        what = f"cannot be written: {error.strerror}"
        raise InputError("bad-samples", what, "make the model's folder writable", str(file)) from error
    except InputError as error:
        raise _unsavable(file, error.message.replace("invalid samples", "the answer is no sample")) from error


def _unsavable(file: Path, reason: str) -> InputError:
    return InputError("bad-input", reason, "leave out --save-sample, and write the sample by hand", str(file))


def _entry(tensors: Sequence[Tensor], known: Sequence[TensorConfig], config: ServedConfig) -> dict[str, object]:
    dims = {entry.name: entry.dims[1:] if config.batched else entry.dims for entry in known}
    return {tensor.name: _value(tensor, dims[tensor.name], config) for tensor in tensors if tensor.name in dims}


def _value(tensor: Tensor, dims: Sequence[int], config: ServedConfig) -> object:
    """A tensor as it stands in the file: without the batch dimension, and with its shape if that is not clear."""
    shape = tensor.shape[1:] if config.batched else tensor.shape
    content = _content(tensor)
    return content if sum(dim < 0 for dim in dims) < 2 else {"content": content, "shape": list(shape)}


def _content(tensor: Tensor) -> object:
    if tensor.datatype == "BYTES":
        items = [_string(item) for item in tensor.data]
        return items[0] if len(items) == 1 and isinstance(items[0], dict) else items
    is_finite = tensor.datatype not in FLOATING or all(math.isfinite(float(value)) for value in tensor.data)
    if is_finite and len(tensor.data) <= _MOST_LISTED:
        return list(tensor.data)
    return _base64(encode(tensor.datatype, tensor.data))


def _string(item: Value) -> object:
    content = item if isinstance(item, bytes) else str(item).encode()
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        return _base64(content)


def _base64(content: bytes) -> dict[str, str]:
    return {"b64": base64.b64encode(content).decode("ascii")}
