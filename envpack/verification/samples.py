"""The user's samples: requests that a model is verified with, and the answers that are expected; how they are read, and
added to.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
import struct
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from envpack.repository.config_rules import fits
from envpack.server.tensors import FLOATING, ServedConfig, Tensor, TensorConfig, Tolerance, Value, decode, encode
from envpack.support.bounded_reading import read_json
from envpack.support.errors import InputError
from envpack.support.replacement import replaced_file
from envpack.support.tables import Location
from envpack.verification.answers import Responses, in_sequence, responses_difference
from envpack.verification.explanations import reported_error
from envpack.verification.verdict import SampleCount

SAMPLES_FILE = Path("envpack/smoke.json")
_KEYS = {"data", "validation_data", "envpack"}
_OF_A_REQUEST = {"inputs", "outputs", "id"}  # of which the last two change nothing that is compared
_TOLERANCE = {"rtol", "atol"}
_SETTINGS = {*_TOLERANCE, "outputs", "minimum_match", "noun"}
_FORMS = (
    'a flat list of elements, {"b64": "..."} with the bytes of one string or of all numbers,'
    ' {"b64_with_lengths": "..."} with a 4-byte length before each string, or {"content": one of these, "shape": [...]}'
)


@dataclass(frozen=True)
class Sample:
    """A request from the user's samples."""

    inputs: tuple[Tensor, ...]
    # The outputs of each expected response, one unless the model is decoupled; None if none are given.
    expected: Responses | None
    parameters: Mapping[str, object] = field(default_factory=dict)  # which place it in a sequence

    def difference(self, found: Responses, samples: Samples) -> str:
        return "" if self.expected is None else responses_difference(self.expected, found, samples.tolerance)


@dataclass(frozen=True)
class Samples:
    """All samples of a model."""

    samples: tuple[Sample, ...]  # in the order of the file
    # By output; the entry "" applies to all others.
    tolerances: Mapping[str, Tolerance] = field(default_factory=lambda: {"": Tolerance()})
    minimum_match: float = 1.0  # required share of matching samples among those with expected answers, 0 to 1
    noun: str = "samples"  # plural noun for the samples, for example "images"

    @property
    def have_answers(self) -> bool:
        return any(sample.expected is not None for sample in self.samples)

    def count(self, right: int) -> SampleCount:
        expected = sum(sample.expected is not None for sample in self.samples)
        needed = math.ceil(round(self.minimum_match * expected, 9))
        return SampleCount(right, len(self.samples), self.noun, needed=needed, expected=expected)

    def tolerance(self, output: str) -> Tolerance:
        return self.tolerances.get(output, self.tolerances[""])


def read_samples(file: Path, config: ServedConfig) -> Samples:
    """Read a model's samples, in the format of perf_analyzer's ``--input-data``, or from the body of a request."""
    place = Location(file, kind="bad-samples")
    try:
        return _read(read_json(file), config)
    except OSError as error:
        raise unreadable_samples(file, error) from error
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
        reason = f"{error.args[0]!r} is missing" if isinstance(error, KeyError) else str(error)
        raise place.at(error.lineno if isinstance(error, json.JSONDecodeError) else 0).error(
            f"invalid samples: {reason}",
            hint="the format is perf_analyzer's --input-data: "
            '{"data": [{"INPUT": [1, 2]}], "validation_data": [{"OUTPUT": [3]}]}, or the body of a request to a server',
        ) from error


def unreadable_samples(file: Path, error: OSError) -> InputError:
    """The error for samples that are there and cannot be read; it is never an answer to make up requests."""
    reason, hint = f"these samples cannot be read: {error.strerror}", "it must be a text file that you can read"
    return Location(file, kind="bad-samples").error(reason, hint=hint)


def _read(content: Mapping[str, Any], config: ServedConfig) -> Samples:
    if not isinstance(content, dict):
        raise TypeError("the document is no JSON object")
    content = _document(content, config)
    data = _streams(content["data"], "data", config)
    expected = _answers(content["validation_data"], config) if "validation_data" in content else None
    if expected is not None and [len(stream) for stream in expected] != [len(stream) for stream in data]:
        raise ValueError("validation_data must have one entry for each entry of data, in the same lists")
    if not any(data):
        raise ValueError("data is empty")
    known_inputs = {entry.name: entry for entry in config.inputs}
    known_outputs = {entry.name: entry for entry in config.outputs}
    samples: list[Sample] = []
    for number, stream in enumerate(data, 1):
        for step, entry in enumerate(stream):
            where = f"[{len(samples)}]"
            answer = {} if expected is None else expected[number - 1][step]
            inputs = _tensors(entry, known_inputs, f"data{where}", batched=config.batched)
            wanted = _expected(answer, known_outputs, f"validation_data{where}", config)
            samples.append(Sample(inputs, wanted, in_sequence(number if config.in_sequences else 0, step, len(stream))))
    return _with_settings(tuple(samples), content.get("envpack", {}), known_outputs)


def _document(content: Mapping[str, Any], config: ServedConfig) -> dict[str, Any]:
    """A document of samples; the body of a request over KServe's HTTP has one for each item of its batch."""
    if "inputs" not in content:
        _refuse_others(content, _KEYS, "")
        return dict(content)
    _refuse_others(content, _OF_A_REQUEST, " of a request")
    if not isinstance(content["inputs"], list) or not all(isinstance(tensor, dict) for tensor in content["inputs"]):
        raise TypeError("inputs must be a list of objects with name, datatype, shape and data")
    inputs = {tensor["name"]: _items(tensor, config) for tensor in content["inputs"]}
    if len({len(items) for items in inputs.values()}) > 1:
        raise ValueError("the inputs have different numbers of items")
    return {"data": [dict(zip(inputs, items, strict=True)) for items in zip(*inputs.values(), strict=True)]}


def _items(tensor: Mapping[str, Any], config: ServedConfig) -> list[dict[str, Any]]:
    """An input of a request as the values that a sample has for it, one for each item of the batch."""
    name, shape, data = tensor["name"], _given_dims(tensor["shape"]), _flat(tensor["data"])
    wanted = next((entry.datatype for entry in config.inputs if entry.name == name), tensor["datatype"])
    if tensor["datatype"] != wanted:
        raise ValueError(f"{name} has the datatype {tensor['datatype']}, and the model takes {wanted}")
    count, dims = (shape[0], shape[1:]) if config.batched and shape else (1, shape)
    length = math.prod(dims)
    if count * length != len(data) or count > max(len(data), 1):
        raise ValueError(f"{len(data)} elements of {name} do not fill the shape {list(shape)}")
    return [{"content": data[at * length : (at + 1) * length], "shape": list(dims)} for at in range(count)]


def _expected(answer: object, known: Mapping[str, TensorConfig], where: str, config: ServedConfig) -> Responses | None:
    """The expected responses to a request; a list has all of a decoupled model's, an empty object is not compared."""
    if not isinstance(answer, list):
        return (_outputs(answer, known, where, config),) if answer != {} else None
    if not config.decoupled:
        raise TypeError(f"{where} must be an object: only a decoupled model has a list of responses")
    return tuple(_outputs(response, known, f"{where}[{number}]", config) for number, response in enumerate(answer))


def _outputs(answer: object, known: Mapping[str, TensorConfig], where: str, config: ServedConfig) -> tuple[Tensor, ...]:
    """Expected outputs; they have a shape if the user says one, and a response has one: those of a stream have none."""
    outputs = _tensors(answer, known, where, batched=config.batched)
    if not isinstance(answer, dict):
        return outputs
    shaped = {name for name, value in answer.items() if isinstance(value, dict) and "shape" in value}
    return tuple(
        tensor if tensor.name in shaped and not config.decoupled else replace(tensor, shape=()) for tensor in outputs
    )


def _with_settings(
    samples: tuple[Sample, ...], settings: Mapping[str, Any], outputs: Mapping[str, TensorConfig]
) -> Samples:
    _refuse_others(settings, _SETTINGS, " in envpack")
    general = _tolerance(settings, Tolerance())
    tolerances = {"": general}
    for name, own in settings.get("outputs", {}).items():
        if name not in outputs:
            raise ValueError(f"the model has no output {name!r}")
        _refuse_others(own, _TOLERANCE, f" of the output {name}")
        tolerances[name] = _tolerance(own, general)
    minimum = float(settings.get("minimum_match", 1.0))
    if not 0 <= minimum <= 1:
        raise ValueError(f"minimum_match is {minimum:g} but must be between 0 and 1")
    return Samples(samples, tolerances, minimum, str(settings.get("noun", "samples")))


def _refuse_others(settings: Mapping[str, Any], known: Collection[str], of: str) -> None:
    """Refuse a key that nothing reads: what it was to say would not count."""
    if unknown := sorted(set(settings).difference(known)):
        raise ValueError(f"unknown key {unknown[0]!r}{of}; known: {', '.join(sorted(known))}")


def _tolerance(settings: Mapping[str, Any], default: Tolerance) -> Tolerance:
    return Tolerance(float(settings.get("rtol", default.rtol)), float(settings.get("atol", default.atol)))


def _streams(value: object, name: str, config: ServedConfig) -> list[list[Any]]:
    """The entries by sequence: a nested list is a sequence, any other entry is a sequence of one request."""
    if not isinstance(value, list):
        raise TypeError(f"{name} must be a list")
    if any(isinstance(entry, list) for entry in value) and not config.sequence:
        raise TypeError(f"{name} holds sequences (a list in the list), but the model has no sequence_batching")
    return [entry if isinstance(entry, list) else [entry] for entry in value]


def _answers(value: object, config: ServedConfig) -> list[list[Any]]:
    """The entries of ``validation_data`` by sequence; a list in place of an entry has a decoupled model's responses."""
    if config.decoupled and not config.in_sequences and isinstance(value, list):
        return [[entry] for entry in value]
    return _streams(value, "validation_data", config)


def _tensors(entry: object, known: Mapping[str, TensorConfig], where: str, *, batched: bool) -> tuple[Tensor, ...]:
    if not isinstance(entry, dict):
        raise TypeError(f"{where} must be an object, with tensors by their names")
    tensors = []
    for name, value in entry.items():
        if name not in known:
            others = f", only {', '.join(sorted(known))}" if known else ""
            raise ValueError(f"{where}: the model has no tensor {name!r}{others}")
        try:
            tensors.append(_tensor(known[name], value, batched=batched))
        except (ValueError, TypeError, KeyError, OverflowError) as error:
            raise ValueError(f"{where}.{name}: {error}") from error
    return tuple(tensors)


def _tensor(config: TensorConfig, value: Any, *, batched: bool) -> Tensor:
    shape = None
    if isinstance(value, dict):
        shape = value.get("shape")
        value = value.get("content", {key: value[key] for key in value if key != "shape"})
    data = _elements(config.datatype, value)
    own_dims = config.dims[1:] if batched else config.dims
    dims = _given_dims(shape) if shape is not None else _dims_for(own_dims, len(data))
    if not fits(dims, own_dims):
        without = "; a sample omits the batch dimension" if batched else ""
        raise ValueError(f"the shape {list(dims)} does not fit {list(own_dims)}{without}")
    if math.prod(dims) != len(data):
        raise ValueError(f"{len(data)} elements do not fill the shape {list(dims)}")
    return Tensor(config.name, config.datatype, (1, *dims) if batched else dims, data)


def _given_dims(shape: object) -> tuple[int, ...]:
    if not isinstance(shape, list) or not all(type(dim) is int and dim >= 0 for dim in shape):
        raise TypeError('"shape" must be a list of whole numbers, none of them negative')
    return tuple(shape)


def _dims_for(dims: tuple[int, ...], count: int) -> tuple[int, ...]:
    if dims.count(-1) > 1:
        raise ValueError(f'the shape {list(dims)} has more than one variable dimension: add "shape"')
    fixed = math.prod(dim for dim in dims if dim >= 0)
    return tuple(count // fixed if dim < 0 and fixed else dim for dim in dims)


def _elements(datatype: str, value: Any) -> tuple[Value, ...]:
    if isinstance(value, dict):
        return _of_base64(datatype, value)
    if not isinstance(value, list):
        raise TypeError(f"must be {_FORMS}")
    elements = tuple(_element(datatype, item) for item in _flat(value))
    try:
        encode(datatype, elements)
    except (struct.error, OverflowError):
        raise ValueError(f"{_first_outside(datatype, elements)!r} is outside of {datatype}") from None
    return elements


def _of_base64(datatype: str, value: Mapping[str, Any]) -> tuple[Value, ...]:
    """The elements in ``{"b64": …}``: the bytes of one string, or of all numbers."""
    if len(value) != 1 or not value.keys() <= {"b64", "b64_with_lengths"}:
        raise TypeError(f"must be {_FORMS}")
    ((key, text),) = value.items()
    try:
        raw = base64.b64decode(re.sub(r"\s", "", text), validate=True)  # programs break it into lines
    except (binascii.Error, TypeError) as error:
        raise ValueError(f"{key}: {error}") from error
    return (raw,) if datatype == "BYTES" and key == "b64" else decode(datatype, raw)


def _first_outside(datatype: str, elements: tuple[Value, ...]) -> Value | None:
    for element in elements:
        try:
            encode(datatype, (element,))
        except (struct.error, OverflowError):
            return element
    return None


def _flat(value: list[Any]) -> list[Any]:
    """The elements of a list and of the lists in it, in their order; not recursive, because lists can be deep."""
    found: list[Any] = []
    pending = [iter(value)]
    while pending:
        for item in pending[-1]:
            if isinstance(item, list):
                pending.append(iter(item))
                break
            found.append(item)
        else:
            pending.pop()
    return found


def _element(datatype: str, item: object) -> Value:
    if datatype == "BYTES" and isinstance(item, dict):
        return _of_base64(datatype, item)[0]
    if datatype == "BYTES" and isinstance(item, str):
        return item.encode()
    if datatype == "BOOL" and isinstance(item, bool | int):
        return bool(item)
    if datatype.startswith(("FP", "BF")) and isinstance(item, int | float):
        return float(item)
    if datatype.startswith(("INT", "UINT")) and isinstance(item, int):
        return item
    raise TypeError(f"{item!r} is not {datatype}")


_MOST_LISTED = 256  # elements; more are written in base64


def add_samples(file: Path, config: ServedConfig, answered: Sequence[tuple[Sequence[Tensor], Responses]]) -> int:
    """Add samples to a file, which need not exist; one with the same inputs is replaced. Returns their number."""
    if config.in_sequences:
        raise _unsavable(file, "the requests belong to sequences, which are not saved")
    if config.batched and any(tensor.shape[:1] != (1,) for inputs, _ in answered for tensor in inputs):
        raise _unsavable(file, "a sample has one item, and a batch of several was sent")
    content: dict[str, Any] = {"data": [], "validation_data": []}
    if file.exists():
        read_samples(file, config)  # what is wrong with it is an error of its own
        content = _document(read_json(file), config)
    output, said = reported_error(tuple(outputs for _, responses in answered for outputs in responses))
    if said:
        hint = "give an input that the model accepts; if an error is right, write the sample by hand"
        raise InputError("bad-input", f"not saved: the text of {output} reports an error: {said}", hint, str(file))
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
