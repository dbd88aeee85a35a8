"""Inputs for a model of which nothing is known but its configuration."""

from __future__ import annotations

import math

from envpack.verification.asking.served_config import ServedConfig, TensorConfig
from envpack.verification.asking.tensors import FLOATING, Tensor, Value


def make_smoke_inputs(config: ServedConfig) -> tuple[Tensor, ...]:
    """One tensor of ones for every input; a dimension that may be anything is 1, and a string is ``"1"``.

    Ones rather than zeros: a model may divide by its input or take it for an index.
    """
    return tuple(_ones(entry) for entry in config.inputs)


def _ones(entry: TensorConfig) -> Tensor:
    shape = tuple(1 if dim < 0 else dim for dim in entry.dims)
    return Tensor(entry.name, entry.datatype, shape, (_one(entry.datatype),) * math.prod(shape))


def _one(datatype: str) -> Value:
    if datatype == "BYTES":
        return b"1"
    if datatype == "BOOL":
        return True
    return 1.0 if datatype in FLOATING else 1
