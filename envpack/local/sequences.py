"""Models with sequence batching: what a server checks, and the inputs that it adds to each request."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from envpack.local.admission import datatype_of
from envpack.local.model_process import ModelFailed
from envpack.local.values import SEQUENCE_END, SEQUENCE_START, RawTensor, Request
from envpack.server import Value, encode

_FALSE_TRUE = (("int32_false_true", "INT32"), ("fp32_false_true", "FP32"), ("bool_false_true", "BOOL"))


class Sequences:
    """The sequences of one model."""

    def __init__(self, config: Any) -> None:
        self._config = config
        self._batching = config.sequence_batching
        self._begun: set[int | str] = set()

    def admit(self, request: Request) -> Request:
        """A request with control inputs and state. The state is always the initial one: the backend keeps none."""
        if self._batching.iterative_sequence:
            return request  # one request, which the model reschedules
        name, sequence = self._config.name, request.correlation_id
        if self._config.max_batch_size and request.inputs and request.inputs[0].shape[0] != 1:
            raise ModelFailed(
                f"inference request to model '{name}' must specify batch-size 1 due to requirements of sequence batcher"
            )
        if not sequence:
            raise ModelFailed(
                f"inference request to model '{name}' must specify a non-zero or non-empty correlation ID"
            )
        if request.flags & SEQUENCE_START:
            self._begun.add(sequence)
        elif sequence not in self._begun:
            raise ModelFailed(
                f"inference request for sequence {sequence} to model '{name}' must specify the START flag on the first "
                "request of the sequence"
            )
        if request.flags & SEQUENCE_END:
            self._begun.discard(sequence)
        states = map(self._initial, self._batching.state)
        return dataclasses.replace(request, inputs=(*states, *self._controls(request), *request.inputs))

    def _shape(self, *dims: int) -> tuple[int, ...]:
        return (1, *dims) if self._config.max_batch_size else dims

    def _initial(self, entry: Any) -> RawTensor:
        datatype = datatype_of(entry)
        dims = tuple(max(size, 1) for size in entry.dims)
        shape = self._shape(*dims)
        zero: Value = b"" if datatype == "BYTES" else False if datatype == "BOOL" else 0
        return RawTensor(entry.input_name, datatype, shape, encode(datatype, (zero,) * math.prod(shape)))

    def _controls(self, request: Request) -> tuple[RawTensor, ...]:
        return tuple(
            self._control(entry.name, control, request)
            for entry in self._batching.control_input
            for control in entry.control
        )

    def _control(self, name: str, control: Any, request: Request) -> RawTensor:
        kind = type(control).Kind.Name(control.kind)
        if kind == "CONTROL_SEQUENCE_CORRID":
            return self._correlation(name, control, request.correlation_id)
        is_set = {
            "CONTROL_SEQUENCE_START": bool(request.flags & SEQUENCE_START),
            "CONTROL_SEQUENCE_END": bool(request.flags & SEQUENCE_END),
            "CONTROL_SEQUENCE_READY": True,
        }[kind]
        for field, datatype in _FALSE_TRUE:
            values = getattr(control, field)
            if values:
                return RawTensor(name, datatype, self._shape(1), encode(datatype, (values[is_set],)))
        raise ModelFailed(f"the control input '{name}' of model '{self._config.name}' has no values for false and true")

    def _correlation(self, name: str, control: Any, sequence: int | str) -> RawTensor:
        datatype = datatype_of(control)
        if datatype == "BYTES":
            value: Value = str(sequence).encode()
        elif isinstance(sequence, str):
            raise ModelFailed(f"the sequence '{sequence}' is no number, which the input '{name}' needs")
        else:
            value = sequence
        return RawTensor(name, datatype, self._shape(1), encode(datatype, (value,)))
