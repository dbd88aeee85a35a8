"""What a server does with requests before a model sees them: refuse some, complete and batch others, warm up."""

from __future__ import annotations

import dataclasses
import json
import math
import random
import re
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeVar

from envpack.local.model_process import ModelFailed
from envpack.local.values import INVALID, SEQUENCE_END, SEQUENCE_START, RawTensor, Request
from envpack.repository.config_rules import WIDTHS, datatype_of, fits
from envpack.repository.folders import file_in
from envpack.support.bounded_reading import opened

_LENGTH = struct.Struct("<I")
_MOST_UNSIGNED = (1 << 64) - 1
_SIGNED = range(-(1 << 63), 1 << 63)
_SURROGATE = re.compile("[\ud800-\udfff]")


def received(request: Request) -> Request:
    """A request as a server hands it on: the parameters that it keeps for itself are fields or gone."""
    parameters = sent_parameters(request)
    for fault in _parameter_faults(request.id, parameters):
        raise _refused(fault)
    kept = {name: parameters.pop(name) for name in _KEPT_BY_SERVER if name in parameters}
    flags = SEQUENCE_START * kept.get("sequence_start", False) | SEQUENCE_END * kept.get("sequence_end", False)
    return dataclasses.replace(
        request,
        id=request.id.partition("\0")[0],
        timeout=kept.get("timeout", request.timeout),
        correlation_id=kept.get("sequence_id", 0),
        flags=flags,
        parameters=_written(parameters),
    )


def rewritten(parameters: str) -> str:
    return _written(json.loads(parameters))


def _written(parameters: Mapping[str, Any]) -> str:
    return "{" + ",".join(f"{_json(name)}:{_json(value)}" for name, value in parameters.items()) + "}"


def sent_parameters(request: Request) -> dict[str, Any]:
    """The parameters of a request as a client sends them, with those that place it in a sequence."""
    parameters: dict[str, Any] = json.loads(request.parameters)
    if request.correlation_id:
        parameters["sequence_id"] = request.correlation_id
        parameters["sequence_start"] = bool(request.flags & SEQUENCE_START)
        parameters["sequence_end"] = bool(request.flags & SEQUENCE_END)
    return parameters


def _json(value: Any) -> str:
    """A value as a server writes it: a whole number of more than 64 bits as a fraction, a text up to a zero byte."""
    if isinstance(value, str):
        return json.dumps(value.partition("\0")[0], ensure_ascii=False)
    if isinstance(value, int) and not isinstance(value, bool) and value not in _SIGNED:
        value = float(value)
    if not isinstance(value, float) or not math.isfinite(value):
        return json.dumps(value)
    return _floating(value)


def _floating(value: float) -> str:
    """The shortest decimal of a number, in the form of RapidJSON: an exponent below 1e-6 and from 1e21 on."""
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    whole, minus = "".join(map(str, digits)), "-" * sign
    point = len(whole) + int(exponent)
    if not value:
        return f"{minus}0.0"
    if not -6 < point <= 21:
        fraction = f".{whole[1:]}" if whole[1:] else ""
        return f"{minus}{whole[0]}{fraction}e{point - 1}"
    if point <= 0:
        return f"{minus}0.{'0' * -point}{whole}"
    return f"{minus}{whole[:point].ljust(point, '0')}.{whole[point:] or '0'}"


def admit(request: Request, config: Any) -> Request:
    """A request as the model gets it, which is checked before."""
    for fault in _faults(request, config):
        raise _refused(fault)
    return completed(request, config)


def completed(request: Request, config: Any) -> Request:
    """A request with all outputs if it names none, and inputs in the shape that the model gets."""
    declared = {entry.name: entry for entry in config.input}
    inputs = tuple(_reshaped(tensor, declared.get(tensor.name), config) for tensor in request.inputs)
    outputs = request.outputs or frozenset(entry.name for entry in config.output)
    return dataclasses.replace(request, inputs=inputs, outputs=outputs)


def _refused(fault: str) -> ModelFailed:
    """Says that a model has not seen a request; a server refuses it too, in words of its own."""
    return ModelFailed(f"refused before the model saw it: {fault}", code=INVALID)


def _parameter_faults(request_id: str, parameters: Mapping[str, Any]) -> Iterator[str]:
    if not isinstance(request_id, str) or _SURROGATE.search(request_id):  # a test may give a number
        yield f"the id {request_id!r} is no text that UTF-8 can encode"
    for name, value in parameters.items():
        if _SURROGATE.search(f"{name}{value}"):
            yield f"the parameter {name!r} has a text that UTF-8 cannot encode"
        fault = _KEPT_BY_SERVER[name](value) if name in _KEPT_BY_SERVER else _value_fault(name, value)
        if fault:
            yield f"the parameter {name!r} is {value!r} but {fault}"


def _value_fault(name: str, value: Any) -> str:
    if name.startswith("triton_"):
        return "names that begin with triton_ are reserved for Triton"
    if not isinstance(value, bool | int | float | str):
        return "must be a text, a number or a boolean"
    return "" if "\0" not in name else "a server cuts its name at the zero byte"


def _unless_whole(value: Any) -> str:
    is_whole = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MOST_UNSIGNED
    return "" if is_whole else "must be a whole number from 0 on"


def _unless_boolean(value: Any) -> str:
    return "" if isinstance(value, bool) else "must be a boolean"


# The parameters that a server keeps for itself, and what is wrong with their values.
_KEPT_BY_SERVER: Mapping[str, Callable[[Any], str]] = {
    "timeout": _unless_whole,
    "priority": _unless_whole,
    "sequence_id": lambda value: "" if isinstance(value, str) else _unless_whole(value),
    "sequence_start": _unless_boolean,
    "sequence_end": _unless_boolean,
    "binary_data_output": lambda _: "",
}


def _faults(request: Request, config: Any) -> Iterator[str]:
    declared = {entry.name: entry for entry in config.input}
    names = [tensor.name for tensor in request.inputs]
    yield from (f"the model has no input {name!r}" for name in names if name not in declared)
    outputs = {entry.name for entry in config.output}
    yield from (f"the model has no output {name!r}" for name in sorted(request.outputs - outputs))
    yield from (f"the input {name!r} is given twice" for name in names if names.count(name) > 1)
    needed = [entry.name for entry in config.input if not entry.optional]
    if len(names) < len(needed):  # a server counts them, and does not compare their names
        yield from (f"the input {name!r} is missing" for name in needed if name not in names)
    yield from _batch_faults(request.inputs, config.max_batch_size)
    for tensor in request.inputs:
        yield from _tensor_faults(tensor, declared[tensor.name], batched=config.max_batch_size > 0)


def _batch_faults(inputs: Sequence[RawTensor], largest: int) -> Iterator[str]:
    """What is wrong with the batch dimension, in which ragged inputs are like all others."""
    if not largest:
        return
    if not inputs:
        yield "it has no input, and so no batch dimension"
    yield from (f"the input {t.name!r} has no batch dimension" for t in inputs if not t.shape)
    sizes = {tensor.shape[0] for tensor in inputs}
    if len(sizes) > 1:
        yield f"its inputs have batches of different sizes: {', '.join(map(str, sorted(sizes)))}"
    for size in sizes:
        if not 1 <= size <= largest:
            shape = list(inputs[0].shape)
            yield f"its batch has {size} items, by the shape {shape}, and the model takes 1 to {largest}"


def _tensor_faults(tensor: RawTensor, entry: Any, *, batched: bool) -> Iterator[str]:
    who, datatype = f"the input {tensor.name!r}", datatype_of(entry)
    if tensor.datatype != datatype:
        yield f"{who} has the type {tensor.datatype}, and the model takes {datatype}"
    if not fits(tensor.shape[1:] if batched else tensor.shape, entry.dims):
        wanted = list((-1, *entry.dims) if batched else entry.dims)
        yield f"{who} has the shape {list(tensor.shape)}, and the model takes {wanted}"
    if any(size < 0 for size in tensor.shape):
        yield f"{who} has the shape {list(tensor.shape)}, with a negative size"
    if tensor.datatype == "BYTES":
        count = _count_strings(tensor.content)
        if count != tensor.size:
            yield f"{who} has {'damaged strings' if count < 0 else f'{count} strings'}, and its shape {tensor.size}"
    elif len(tensor.content) != tensor.size * WIDTHS[tensor.datatype]:
        yield f"{who} has {len(tensor.content)} bytes, and its shape {tensor.size * WIDTHS[tensor.datatype]}"


def _count_strings(content: bytes | memoryview) -> int:
    at = count = 0
    while at + _LENGTH.size <= len(content):
        at += _LENGTH.size + _LENGTH.unpack_from(content, at)[0]
        count += 1
    return count if at == len(content) else -1


def _reshaped(tensor: RawTensor, entry: Any, config: Any) -> RawTensor:
    if entry is None or not entry.HasField("reshape"):  # a warm-up may have inputs that are not declared
        return tensor
    batch, own = (tensor.shape[:1], tensor.shape[1:]) if config.max_batch_size else ((), tensor.shape)
    return dataclasses.replace(tensor, shape=(*batch, *reshaped(own, entry.dims, entry.reshape.shape)))


def reshaped(shape: Sequence[int], dims: Sequence[int], target: Sequence[int]) -> tuple[int, ...]:
    """A shape that fits ``dims``, as ``target`` reshapes it; variable dimensions keep their sizes, in order."""
    variable = [have for want, have in zip(dims, shape, strict=True) if want == -1]
    return tuple(variable.pop(0) if size == -1 and variable else size for size in target)


def deliver(outputs: Sequence[RawTensor], config: Any) -> tuple[RawTensor, ...]:
    """The outputs in the shapes that clients see; raises `ModelFailed` for a shape that does not hold its elements."""
    declared: Mapping[str, Any] = {entry.name: entry for entry in config.output}
    return tuple(_delivered(tensor, declared.get(tensor.name), config) for tensor in outputs)


def _delivered(tensor: RawTensor, entry: Any, config: Any) -> RawTensor:
    """A server computes the shape from the variable dimensions alone, and without them takes that of ``dims``."""
    if entry is None or not entry.HasField("reshape"):
        return tensor
    batch, own = (tensor.shape[:1], tensor.shape[1:]) if config.max_batch_size else ((), tensor.shape)
    target = entry.reshape.shape
    variable = [at for at, size in enumerate(target) if size == -1]
    if all(at < len(own) for at in variable):
        sizes = iter([own[at] for at in variable])
        shape = (*batch, *(next(sizes) if size == -1 else size for size in entry.dims))
        if math.prod(shape) == tensor.size:
            return dataclasses.replace(tensor, shape=shape)
    wanted = [*([-1] if batch else []), *target]
    raise ModelFailed(f"the output {tensor.name!r} has the shape {list(tensor.shape)}, and its reshape takes {wanted}")


_Owner = TypeVar("_Owner")


def batches(waiting: Sequence[tuple[Request, _Owner]], config: Any) -> Iterator[list[_Owner]]:
    """What belongs to the requests of each call of ``execute()``, in their order.

    Without ``dynamic_batching``, or if the model has no batch dimension, each request is a call of its own. Requests
    are joined if their inputs have the same names and shapes, up to ``max_batch_size`` items; of those that wait, a
    preferred number goes first.
    """
    left = list(waiting)
    while left:
        count = _first_batch([request for request, _ in left], config)
        yield [owner for _, owner in left[:count]]
        del left[:count]


def _first_batch(requests: Sequence[Request], config: Any) -> int:
    if not config.HasField("dynamic_batching") or not config.max_batch_size:
        return 1
    preferred = set(config.dynamic_batching.preferred_batch_size)
    items, last_preferred, count = 0, 0, 0
    for request in requests:
        items += request.items
        if items > config.max_batch_size or _shapes(request, config) != _shapes(requests[0], config):
            break
        count += 1
        if items in preferred:
            last_preferred = count
    return last_preferred or max(count, 1)


def _shapes(request: Request, config: Any) -> frozenset[tuple[str, tuple[int, ...]]]:
    """What has to be equal in the requests of a batch: names, and shapes but for inputs that may be ragged."""
    ragged = {entry.name for entry in config.input if entry.allow_ragged_batch}
    return frozenset((tensor.name, () if tensor.name in ragged else tensor.shape[1:]) for tensor in request.inputs)


_EMPTY_STRING = bytes(4)  # its length
_MOST_BYTES = 1 << 32  # of one input


def warmups(config: Any, folder: Path) -> Iterator[tuple[str, list[Request]]]:
    """The name of each warm-up and the requests that reach the model together, as often as they do.

    A server sends ``batch_size`` requests of one item, and none without it. Random strings are empty there, too.
    """
    for warmup in config.model_warmup:
        if not warmup.batch_size:
            continue
        batch = (1,) if config.max_batch_size else ()
        request = Request(
            tuple(
                RawTensor(name, datatype_of(value), (*batch, *value.dims), _content(warmup.name, value, folder))
                for name, value in warmup.inputs.items()
            )
        )
        for _ in range(max(warmup.count, 1)):
            yield warmup.name, [request] * warmup.batch_size


def _content(warmup: str, value: Any, folder: Path) -> bytes:
    datatype, count = datatype_of(value), math.prod(value.dims)
    is_text = datatype == "BYTES"
    size = count * (len(_EMPTY_STRING) if is_text else WIDTHS[datatype])
    if size > _MOST_BYTES:
        raise ModelFailed(f"an input of the warm-up '{warmup}' has {size} bytes, and may have {_MOST_BYTES}")
    if value.input_data_file:
        with opened(file_in(folder / "warmup", value.input_data_file)) as content:
            return content.read(_MOST_BYTES if is_text else size)
    return bytes(size) if is_text or value.zero_data else random.Random(0).randbytes(size)  # noqa: S311 - no secret
