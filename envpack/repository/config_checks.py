"""What a server checks of a configuration before it loads the model; the texts are those of a Triton 24.10 server."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
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


def warmup_faults(config: ModelConfig, folder: Path) -> Iterator[str]:
    """What keeps a server from warming up a model with a complete configuration.

    Args:
        config: its configuration.
        folder: of the model.
    """
    model: Any = config
    declared = {entry.name: entry for entry in model.input}
    for warmup in model.model_warmup:
        where = f"the warm-up {warmup.name!r}"
        for name, value in warmup.inputs.items():
            file = value.input_data_file
            if file and not (folder / "warmup" / file).is_file():
                yield f"{where} reads warmup/{file}, which does not exist"
            if name not in declared:
                yield f"{where} has the input {name!r}, which the model does not declare"
            elif value.data_type != declared[name].data_type:
                yield f"{where} has another data_type for the input {name!r} than the model declares"
        for name, entry in declared.items():
            if name not in warmup.inputs and not entry.optional:
                yield f"{where} lacks the input {name!r}"
