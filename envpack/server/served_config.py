"""The configuration with which a server runs a model, as far as requests and responses depend on it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Required, TypedDict

_DATATYPES = {"TYPE_STRING": "BYTES"}


class TensorEntry(TypedDict, total=False):
    """An input or output in `ModelConfig`."""

    name: Required[str]
    data_type: Required[str]
    dims: Required[list[int | str]]
    optional: bool


class InstanceGroup(TypedDict, total=False):
    """An instance group in `ModelConfig`."""

    name: str
    kind: str
    count: int
    gpus: list[int]


class TransactionPolicy(TypedDict, total=False):
    """The transaction policy in `ModelConfig`."""

    decoupled: bool


class ModelConfig(TypedDict, total=False):
    """The response to ``GET /v2/models/<name>/config``: the JSON form of Triton's ModelConfig, as far as it is read."""

    name: str
    max_batch_size: int
    input: list[TensorEntry]
    output: list[TensorEntry]
    instance_group: list[InstanceGroup]
    model_transaction_policy: TransactionPolicy
    sequence_batching: dict[str, Any]
    dynamic_batching: dict[str, Any]


@dataclass(frozen=True)
class TensorConfig:
    """An input or output of a model.

    Attributes:
        name: name of the tensor.
        datatype: KServe's name of the type, for example ``"FP32"``.
        dims: dimensions in requests, including the batch dimension; -1 is any size.
        optional: whether a request can omit it.
    """

    name: str
    datatype: str
    dims: tuple[int, ...]
    optional: bool = False


@dataclass(frozen=True, kw_only=True)
class ServedConfig:
    """The parts of a model's configuration that determine its requests and responses.

    Attributes:
        inputs: inputs, in order.
        outputs: outputs, in order.
        largest_batch: maximum number of items in a request; 0 if the first dimension is not a batch.
        decoupled: whether a request can have any number of responses (plain inference is then not available).
        sequence: whether requests belong to sequences.
        iterative: whether a sequence is one request, which the model has scheduled again until it is answered.
        sequences_at_once: how many sequences the model answers at the same time, 0 without sequences; further ones wait
            until one has ended.
        instances: number of model instances.
        kinds: kinds of the instances, ``"KIND_CPU"``, ``"KIND_GPU"``, …, without duplicates.
        merges: whether the server merges requests that wait into one batch (``dynamic_batching``).
        refuses: whether the server may refuse requests that wait: a policy limits their number or their time.
    """

    inputs: tuple[TensorConfig, ...]
    outputs: tuple[TensorConfig, ...]
    largest_batch: int
    decoupled: bool
    sequence: bool
    instances: int
    kinds: tuple[str, ...]
    merges: bool = False
    refuses: bool = False
    iterative: bool = False
    sequences_at_once: int = 0

    @property
    def in_sequences(self) -> bool:
        """Whether clients say to which sequence a request belongs; the server does it for iterative ones."""
        return self.sequence and not self.iterative

    @property
    def batched(self) -> bool:
        """Whether the first dimension is a batch."""
        return self.largest_batch > 0


def read_served_config(config: ModelConfig) -> ServedConfig:
    """Read the response to ``GET /v2/models/<name>/config``."""
    largest_batch = int(config.get("max_batch_size", 0))
    batched = largest_batch > 0
    groups = config.get("instance_group", ())
    instances = sum(int(group.get("count", 1)) * max(1, len(group.get("gpus", ()))) for group in groups)
    return ServedConfig(
        inputs=tuple(_tensor(entry, batched=batched) for entry in config.get("input", ())),
        outputs=tuple(_tensor(entry, batched=batched) for entry in config.get("output", ())),
        largest_batch=largest_batch,
        decoupled=bool(config.get("model_transaction_policy", {}).get("decoupled", False)),
        sequence="sequence_batching" in config,
        instances=instances,
        kinds=tuple(dict.fromkeys(str(group.get("kind", "")) for group in groups)),
        merges="dynamic_batching" in config,
        refuses=_has_queue_policy(config.get("dynamic_batching", {})),
        iterative=bool(config.get("sequence_batching", {}).get("iterative_sequence", False)),
        sequences_at_once=_sequences_at_once(config, max(largest_batch, 1) * max(instances, 1)),
    )


def _has_queue_policy(dynamic_batching: dict[str, Any]) -> bool:
    return any(value for name, value in dynamic_batching.items() if name.endswith("queue_policy"))


def _sequences_at_once(config: ModelConfig, slots: int) -> int:
    if "sequence_batching" not in config:
        return 0
    candidates = int(config["sequence_batching"].get("oldest", {}).get("max_candidate_sequences", 0))
    return min(slots, candidates) if candidates else slots


def _tensor(entry: TensorEntry, *, batched: bool) -> TensorConfig:
    datatype = str(entry["data_type"])
    dims = tuple(int(dim) for dim in entry["dims"])
    return TensorConfig(
        entry["name"],
        _DATATYPES.get(datatype, datatype.removeprefix("TYPE_")),
        (-1, *dims) if batched else dims,
        bool(entry.get("optional", False)),
    )
