"""What a server checks of a configuration before it loads the model; the texts are those of a Triton 24.10 server."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from envpack.repository.config import ModelConfig


def config_faults(config: ModelConfig) -> Iterator[str]:
    """What keeps a model with a completed configuration from being loaded."""
    if config.max_batch_size < 0:
        yield "'max_batch_size' must be non-negative value"
    for kind, entries in (("input", config.input), ("output", config.output)):
        for entry in entries:
            if fault := _fault(entry, f"model {kind}", is_batched=config.max_batch_size > 0):
                yield fault


def _fault(entry: Any, kind: str, *, is_batched: bool) -> str:
    who = f"{kind} '{entry.name}'"
    shape = entry.reshape.shape
    reshapes = entry.HasField("reshape")
    has_other_size = -1 not in (*entry.dims, *shape) and math.prod(entry.dims) != math.prod(shape)
    faults = (
        (not entry.name, f"{kind} must specify 'name'"),
        (not entry.data_type, f"{who} must specify 'data_type'"),
        (not entry.dims, f"{who} must specify 'dims'"),
        (
            any(size < 1 and size != -1 for size in entry.dims),
            f"{who} dimension must be integer >= 1, or -1 to indicate a variable-size dimension",
        ),
        (
            reshapes and not shape and not is_batched,
            f"{who} cannot have empty reshape for non-batching model as scalar tensors are not supported",
        ),
        (reshapes and has_other_size, f"{who} has different size for dims and reshape"),
    )
    return next((text for is_wrong, text in faults if is_wrong), "")
