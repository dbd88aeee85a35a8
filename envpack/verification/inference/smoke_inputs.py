"""Questions for a model of which nothing is known but its configuration."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from envpack.server import FLOATING, Tensor, Value
from envpack.verification.inference.served_config import ServedConfig, TensorConfig

_WHOLE_SEQUENCE = {"sequence_id": 1, "sequence_start": True, "sequence_end": True}


@dataclass(frozen=True)
class Question:
    """One request.

    Attributes:
        about: what it tries, for a sentence: "asked" + about.
        inputs: its inputs.
        parameters: parameters of the request.

    """

    about: str
    inputs: tuple[Tensor, ...]
    parameters: Mapping[str, object] = field(default_factory=dict)


def whole_sequence(config: ServedConfig) -> Mapping[str, object]:
    """Parameters that make one request a sequence, for models that insist on sequences; else none."""
    return _WHOLE_SEQUENCE if config.sequence else {}


def make_questions(config: ServedConfig) -> Iterator[Question]:
    """All inputs; only those that must be there; two items in one request, where the model takes a batch.

    Every element is one (a string is ``"1"``), every dimension that may be anything is 1. Ones rather than zeros: a
    model may divide by its input or take it for an index. A model without inputs cannot be asked.
    """
    parameters = whole_sequence(config)
    if not config.inputs:
        return
    yield Question("with every input", _ones(config.inputs, 1), parameters)
    needed = tuple(entry for entry in config.inputs if not entry.optional)
    if needed and len(needed) < len(config.inputs):
        yield Question("without the optional inputs", _ones(needed, 1), parameters)
    if config.largest_batch > 1 and not config.sequence:
        yield Question("with two items in one request", _ones(config.inputs, 2), parameters)


def _ones(entries: tuple[TensorConfig, ...], batch: int) -> tuple[Tensor, ...]:
    return tuple(_one_tensor(entry, batch) for entry in entries)


def _one_tensor(entry: TensorConfig, batch: int) -> Tensor:
    shape = tuple(1 if dim < 0 else dim for dim in entry.dims)
    shape = (batch, *shape[1:]) if batch > 1 else shape
    return Tensor(entry.name, entry.datatype, shape, (_one(entry.datatype),) * math.prod(shape))


def _one(datatype: str) -> Value:
    if datatype == "BYTES":
        return b"1"
    if datatype == "BOOL":
        return True
    return 1.0 if datatype in FLOATING else 1
