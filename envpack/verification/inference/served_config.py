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
        optional: whether a request may leave it out.

    """

    name: str
    datatype: str
    dims: tuple[int, ...]
    optional: bool = False


@dataclass(frozen=True)
class ServedConfig:
    """What a client must know to ask a model.

    Attributes:
        inputs: its inputs, in order.
        outputs: its outputs, in order.
        largest_batch: how many items a request may hold; 0 if the first dimension is no batch.
        decoupled: whether it may answer any number of times (no plain inference then).
        sequence: whether requests belong to sequences.
        instances: how many processes serve it.
        kinds: where its instances run, ``"KIND_CPU"``, ``"KIND_GPU"``, …, each once.

    """

    inputs: tuple[TensorConfig, ...]
    outputs: tuple[TensorConfig, ...]
    largest_batch: int
    decoupled: bool
    sequence: bool
    instances: int
    kinds: tuple[str, ...]

    @property
    def batched(self) -> bool:
        """Whether the first dimension is a batch."""
        return self.largest_batch > 0


def read_served_config(config: Mapping[str, Any]) -> ServedConfig:
    """Read the answer of ``GET /v2/models/<name>/config``."""
    largest_batch = int(config.get("max_batch_size", 0))
    batched = largest_batch > 0
    groups = config.get("instance_group", ())
    return ServedConfig(
        inputs=tuple(_tensor(entry, batched=batched) for entry in config.get("input", ())),
        outputs=tuple(_tensor(entry, batched=batched) for entry in config.get("output", ())),
        largest_batch=largest_batch,
        decoupled=bool(config.get("model_transaction_policy", {}).get("decoupled", False)),
        sequence="sequence_batching" in config,
        instances=sum(int(group.get("count", 1)) * max(1, len(group.get("gpus", ()))) for group in groups),
        kinds=tuple(dict.fromkeys(str(group.get("kind", "")) for group in groups)),
    )


def _tensor(entry: Mapping[str, Any], *, batched: bool) -> TensorConfig:
    datatype = str(entry["data_type"])
    dims = tuple(int(dim) for dim in entry["dims"])
    return TensorConfig(
        entry["name"],
        _DATATYPES.get(datatype, datatype.removeprefix("TYPE_")),
        (-1, *dims) if batched else dims,
        bool(entry.get("optional", False)),
    )
