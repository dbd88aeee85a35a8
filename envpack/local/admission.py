"""What a server checks before a model sees a request, and what it adds to it.

The texts of errors are those of a Triton 24.10 server.
"""

from __future__ import annotations

import dataclasses
import math
import struct
from collections.abc import Mapping, Sequence
from typing import Any

from envpack.local.model_process import ModelFailed
from envpack.local.values import RawTensor, Request

_NAMES = {"TYPE_STRING": "BYTES"}
_WIDTHS = {"BOOL": 1, "UINT8": 1, "INT8": 1, "UINT16": 2, "INT16": 2, "FP16": 2, "BF16": 2}
_WIDTHS |= {"UINT32": 4, "INT32": 4, "FP32": 4, "UINT64": 8, "INT64": 8, "FP64": 8}
_BATCH_NOTE = (
    "NOTE: Setting a non-zero max_batch_size in the model config requires a batch dimension to be prepended to each "
    "input shape. If you want to specify the full shape including the batch dim in your input dims config, try setting "
    "max_batch_size to zero. See the model configuration docs for more info on max_batch_size."
)
_LENGTH = struct.Struct("<I")


def datatype_of(entry: Any) -> str:
    """KServe's name of the type of an input or output of a configuration."""
    name: str = type(entry).DESCRIPTOR.fields_by_name["data_type"].enum_type.values_by_number[entry.data_type].name
    return _NAMES.get(name, name.removeprefix("TYPE_"))


def admit(request: Request, config: Any) -> Request:
    """A request as the model gets it: checked, with all outputs if it names none, and inputs in their model shape."""
    declared = {entry.name: entry for entry in config.input}
    outputs = {entry.name for entry in config.output}
    for tensor in request.inputs:
        if tensor.name not in declared and len(request.inputs) <= len(declared):
            raise ModelFailed(f"unexpected inference input '{tensor.name}' for model '{config.name}'")
    for name in sorted(request.outputs):
        if name not in outputs:
            raise ModelFailed(f"unexpected inference output '{name}' for model '{config.name}'")
    who = f"[request id: {request.id or '<id_unknown>'}] "
    _check_names(request.inputs, config, who)
    batch = _check_batch(request.inputs, config, who)
    inputs = tuple(_checked(tensor, declared[tensor.name], config, batch, who) for tensor in request.inputs)
    return dataclasses.replace(request, inputs=inputs, outputs=request.outputs or frozenset(outputs))


def _check_names(inputs: Sequence[RawTensor], config: Any, who: str) -> None:
    names = [tensor.name for tensor in inputs]
    for name in names:
        if names.count(name) > 1:
            raise ModelFailed(f"{who}input '{name}' already exists in request")
    most = len(config.input)
    least = sum(not entry.optional for entry in config.input)
    if least <= len(names) <= most:
        return
    expected = f"expected {most} inputs" if least == most else f"expected number of inputs between {least} and {most}"
    given = ",".join(f"'{name}'" for name in names)
    absent = [entry.name for entry in config.input if not entry.optional and entry.name not in names]
    missing = "[" + ",".join(f"'{name}'" for name in absent) + "]" if absent else "]"
    raise ModelFailed(
        f"{who}{expected} but got {len(names)} inputs for model '{config.name}'. Got input(s) [{given}], but missing "
        f"required input(s) {missing}. Please provide all required input(s)."
    )


def _check_batch(inputs: Sequence[RawTensor], config: Any, who: str) -> int:
    """The size of the batch; 0 for a model without one."""
    if not config.max_batch_size:
        return 0
    declared = {entry.name: entry for entry in config.input}
    batch = 0
    for tensor in inputs:
        if not tensor.shape:
            raise ModelFailed(
                f"{who}input '{tensor.name}' has no shape but model requires batch dimension for '{config.name}'"
            )
        if declared[tensor.name].allow_ragged_batch:
            continue
        batch = batch or tensor.shape[0]
        if tensor.shape[0] != batch:
            raise ModelFailed(
                f"{who}input '{inputs[0].name}' batch size does not match other inputs for '{config.name}'"
            )
    if batch > config.max_batch_size:
        raise ModelFailed(f"{who}inference request batch-size must be <= {config.max_batch_size} for '{config.name}'")
    return batch


def _checked(tensor: RawTensor, entry: Any, config: Any, batch: int, who: str) -> RawTensor:
    datatype = datatype_of(entry)
    if tensor.datatype != datatype:
        raise ModelFailed(
            f"{who}inference input '{tensor.name}' data-type is '{tensor.datatype}', but model '{config.name}' expects "
            f"'{datatype}'"
        )
    batched = config.max_batch_size > 0
    own = tensor.shape[1:] if batched else tensor.shape
    if not fits(own, entry.dims):
        wanted = ",".join(map(str, (-1, *entry.dims) if batched else entry.dims))
        given = ",".join(map(str, tensor.shape))
        raise ModelFailed(
            f"{who}unexpected shape for input '{tensor.name}' for model '{config.name}'. Expected [{wanted}], got "
            f"[{given}]. {_BATCH_NOTE if batched else ''}"
        )
    _check_size(tensor, config, who)
    if not entry.HasField("reshape"):
        return tensor
    shape = reshaped(own, entry.dims, entry.reshape.shape)
    return dataclasses.replace(tensor, shape=(batch, *shape) if batched else shape)


def fits(shape: Sequence[int], dims: Sequence[int]) -> bool:
    """Whether a shape is one that a configuration allows; -1 is any size."""
    return len(shape) == len(dims) and all(want in (-1, have) for want, have in zip(dims, shape, strict=True))


def _check_size(tensor: RawTensor, config: Any, who: str) -> None:
    given = len(tensor.content)
    if tensor.datatype == "BYTES":
        _check_strings(tensor, config, who)
    elif given != tensor.size * _WIDTHS[tensor.datatype]:
        raise ModelFailed(
            f"{who}input byte size mismatch for input '{tensor.name}' for model '{config.name}'. Expected "
            f"{tensor.size * _WIDTHS[tensor.datatype]}, got {given}"
        )


def _check_strings(tensor: RawTensor, config: Any, who: str) -> None:
    at = count = 0
    while at + _LENGTH.size <= len(tensor.content):
        at += _LENGTH.size + _LENGTH.unpack_from(tensor.content, at)[0]
        count += 1
    if at != len(tensor.content) or count != tensor.size:
        raise ModelFailed(
            f"{who}expected {tensor.size} string elements for inference input '{tensor.name}' for model "
            f"'{config.name}', got {count}"
        )


def reshaped(shape: Sequence[int], dims: Sequence[int], target: Sequence[int]) -> tuple[int, ...]:
    """A shape that fits ``dims``, as ``target`` reshapes it; variable dimensions keep their sizes, in order."""
    variable = [have for want, have in zip(dims, shape, strict=True) if want == -1]
    return tuple(variable.pop(0) if size == -1 and variable else size for size in target)


def deliver(outputs: Sequence[RawTensor], config: Any) -> tuple[RawTensor, ...]:
    """The outputs of a response in the shapes that clients see, which ``reshape`` changes."""
    declared: Mapping[str, Any] = {entry.name: entry for entry in config.output}
    return tuple(_delivered(tensor, declared.get(tensor.name), config) for tensor in outputs)


def _delivered(tensor: RawTensor, entry: Any, config: Any) -> RawTensor:
    if entry is None or not entry.HasField("reshape"):
        return tensor
    batched = config.max_batch_size > 0
    own = tensor.shape[1:] if batched else tensor.shape
    if len(own) != len(entry.reshape.shape):
        return tensor
    shape = reshaped(own, entry.reshape.shape, entry.dims)
    shape = (*tensor.shape[:1], *shape) if batched else shape
    return dataclasses.replace(tensor, shape=shape) if math.prod(shape) == tensor.size else tensor
