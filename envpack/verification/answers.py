"""Sends requests to a model and compares its answers. The answer of a decoupled model is a stream of responses."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from envpack.server.kserve import Client, Event, InferMessage, RequestError, is_text
from envpack.server.tensors import (
    BINARY_ONLY,
    FLOATING,
    ServedConfig,
    Tensor,
    TensorConfig,
    Tolerance,
    Value,
    difference,
)
from envpack.server.together import infer_together, stream, stream_together
from envpack.support.text import counted

Responses = tuple[tuple[Tensor, ...], ...]
"""The outputs of each response to a request: of one, or of any number from a decoupled model."""


TOGETHER = Tolerance(rtol=1e-2, atol=1e-4)
"""How far an answer may be from the one that its request gets alone: a batch is computed in another order."""


def unsendable(config: ServedConfig, inputs: Sequence[Tensor] = ()) -> str:
    """Why HTTP cannot carry a request to a decoupled model, or its responses; ``""`` if it can."""
    if not config.decoupled:
        return ""
    if binary_only := sorted({entry.datatype for entry in (*config.inputs, *config.outputs)} & BINARY_ONLY):
        return f"requests to a decoupled model are JSON, which cannot represent {binary_only[0]}"
    if config.in_sequences:
        return "a request to a decoupled model cannot name its sequence over HTTP"
    if not all(is_text(item) for tensor in inputs for item in tensor.data):
        return "requests to a decoupled model are JSON, which cannot represent bytes that are no text"
    return ""


def in_sequence(number: int, step: int, length: int) -> dict[str, object]:
    """Parameters that place a request in a sequence; none if its number is 0."""
    return {"sequence_id": number, "sequence_start": step == 0, "sequence_end": step == length - 1} if number else {}


@dataclass(frozen=True)
class LoadedModel:
    """A model that a server has loaded."""

    client: Client
    name: str
    config: ServedConfig

    def ask(self, inputs: Sequence[Tensor], parameters: Mapping[str, object]) -> Responses:
        if self.config.decoupled:
            return _responses(stream(self.client, self.name, inputs), self.config)
        return (self.client.infer(self.name, inputs, binary=True, parameters=parameters),)

    def message(
        self, inputs: Sequence[Tensor], parameters: Mapping[str, object], outputs: Sequence[str] = ()
    ) -> InferMessage:
        if self.config.decoupled:
            return self.client.stream_message(self.name, inputs)
        return self.client.infer_message(self.name, inputs, binary=True, parameters=parameters, outputs=outputs)

    def ask_together(self, messages: Sequence[InferMessage]) -> list[Responses | RequestError]:
        """Send requests so that they are complete at the same time; returns the answer to each."""
        client, config = self.client, self.config
        if not config.decoupled:
            answers = infer_together(client, messages, timeout=client.timeout)
            return [answer if isinstance(answer, RequestError) else (answer,) for answer in answers]
        streams = stream_together(client, messages, timeout=client.timeout)
        return [found if isinstance(found, RequestError) else _responses(found, config) for found in streams]


def _responses(events: Sequence[Event], config: ServedConfig) -> Responses:
    return tuple(
        tuple(_tensor(entry, event[entry.name]) for entry in config.outputs if entry.name in event) for event in events
    )


def _tensor(entry: TensorConfig, value: object) -> Tensor:
    """An output in a stream, which has neither type nor shape."""
    data = tuple(_element(entry.datatype, item) for item in (value if isinstance(value, list) else [value]))
    return Tensor(entry.name, entry.datatype, _shape(entry.dims, len(data)), data)


def _element(datatype: str, item: object) -> Value:
    if datatype == "BYTES":
        return str(item).encode()
    if datatype in FLOATING and isinstance(item, int):
        return float(item)
    return item if isinstance(item, bool | int | float) else math.nan


def _shape(dims: Sequence[int], count: int) -> tuple[int, ...]:
    """A shape that fits the configuration if one of so many elements does; variable dimensions are 1 but the last."""
    fixed = math.prod(dim for dim in dims if dim >= 0)
    variable = [at for at, dim in enumerate(dims) if dim < 0]
    if not variable or not fixed or count % fixed:
        return tuple(dims) if fixed == count and not variable else (count,)
    return tuple(dim if dim >= 0 else count // fixed if at == variable[-1] else 1 for at, dim in enumerate(dims))


def responses_difference(
    expected: Responses, found: Responses, tolerance: Callable[[str], Tolerance] = lambda _: TOGETHER
) -> str:
    """The first difference between two answers in one phrase, ``""`` if there is none."""
    if len(expected) != len(found):
        return f"{counted(len(found), 'response')} instead of {len(expected)}"
    for number, (wanted, response) in enumerate(zip(expected, found, strict=True)):
        if unequal := _outputs_difference(wanted, response, tolerance):
            if len(expected) == 1:
                return unequal
            same = Counter(expected) == Counter(found)
            return "the same responses in another order" if same else f"response {number}: {unequal}"
    return ""


def _outputs_difference(
    expected: Sequence[Tensor], found: Sequence[Tensor], tolerance: Callable[[str], Tolerance]
) -> str:
    by_name = {tensor.name: tensor for tensor in found}
    for tensor in expected:
        other = by_name.get(tensor.name)
        unequal = difference(tensor, other, tolerance(tensor.name)) if other else "is missing"
        if unequal:
            return f"{tensor.name} {unequal}"
    return ""
