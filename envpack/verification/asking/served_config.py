"""The configuration that a model is served with, as far as inference needs it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_DATATYPES = {"TYPE_STRING": "BYTES"}


@dataclass(frozen=True)
class TensorConfig:
    """One input or output.

    Attributes:
        name: its name.
        datatype: KServe's name of its type.
        dims: dimensions as a client sees them, batch included; -1 is any.

    """

    name: str
    datatype: str
    dims: tuple[int, ...]


@dataclass(frozen=True)
class ServedConfig:
    """What a client must know to ask a model.

    Attributes:
        inputs: its inputs, in order.
        outputs: its outputs, in order.
        batched: whether the first dimension is a batch.
        decoupled: whether it may answer any number of times (no plain inference then).
        sequence: whether requests belong to sequences.

    """

    inputs: tuple[TensorConfig, ...]
    outputs: tuple[TensorConfig, ...]
    batched: bool
    decoupled: bool
    sequence: bool


def read_served_config(config: Mapping[str, Any]) -> ServedConfig:
    """Read the answer of ``GET /v2/models/<name>/config``."""
    batched = int(config.get("max_batch_size", 0)) > 0
    return ServedConfig(
        inputs=tuple(_tensor(entry, batched=batched) for entry in config.get("input", ())),
        outputs=tuple(_tensor(entry, batched=batched) for entry in config.get("output", ())),
        batched=batched,
        decoupled=bool(config.get("model_transaction_policy", {}).get("decoupled", False)),
        sequence="sequence_batching" in config,
    )


def _tensor(entry: Mapping[str, Any], *, batched: bool) -> TensorConfig:
    datatype = str(entry["data_type"])
    dims = tuple(int(dim) for dim in entry["dims"])
    return TensorConfig(
        entry["name"],
        _DATATYPES.get(datatype, datatype.removeprefix("TYPE_")),
        (-1, *dims) if batched else dims,
    )
