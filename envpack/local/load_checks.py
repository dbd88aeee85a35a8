"""What a server checks before it loads a model. The texts of errors are those of a Triton 24.10 server."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from envpack.local.model_process import ModelFailed

_INVALID = "Invalid argument"


def check_config(config: Any) -> None:
    """Check a completed configuration.

    Raises:
        ModelFailed: a server does not load a model with it.

    """
    if config.max_batch_size < 0:
        raise ModelFailed(f"'max_batch_size' must be non-negative value for {config.name}", status=_INVALID)
    for kind, entries in (("input", config.input), ("output", config.output)):
        for entry in entries:
            fault = _fault(entry, f"model {kind}", is_batched=config.max_batch_size > 0)
            if fault:
                raise ModelFailed(f"{fault} for {config.name}", status=_INVALID)


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


def check_circles(name: str, steps_of: Callable[[str], Sequence[str]]) -> None:
    """Check that no ensemble runs itself.

    Args:
        name: of the ensemble.
        steps_of: names of the models that an ensemble runs; empty for other models.

    Raises:
        ModelFailed: one does.

    """

    def follow(path: tuple[str, ...]) -> None:
        for step in steps_of(path[-1]):
            if step in path:
                circle = f"{path[0]} -> ... -> {path[-1]} -> {step}"
                raise ModelFailed(f"circular dependency between ensembles: {circle}")
            follow((*path, step))

    follow((name,))


def check_ensemble(config: Any, models: Mapping[str, Any]) -> None:
    """Check that the steps of an ensemble fit the models that they name.

    Args:
        config: of the ensemble.
        models: the configurations of these models; without those that only a server has.

    Raises:
        ModelFailed: they do not.

    """
    known = {entry.name: (entry, config) for entry in (*config.input, *config.output)}
    for step in config.ensemble_scheduling.step:
        model = models.get(step.model_name)
        if model is None:
            continue
        if config.max_batch_size > model.max_batch_size:
            raise ModelFailed(
                f"ensemble {config.name} allows maximum batch size {config.max_batch_size}, but it contains model "
                f"{model.name} which only allows maximum batch size to be {model.max_batch_size}"
            )
        _check_names(config, step, model)
        for entries, names in ((model.input, step.input_map), (model.output, step.output_map)):
            for entry in entries:
                if entry.name in names:
                    tensor = names[entry.name]
                    _check_types(f"in ensemble {config.name}, ensemble tensor {tensor}", known, tensor, entry, model)


def _check_names(config: Any, step: Any, model: Any) -> None:
    inputs = {entry.name: entry for entry in model.input}
    outputs = {entry.name for entry in model.output}
    where = f"in ensemble {config.name}, "
    for own, tensor in step.input_map.items():
        if own not in inputs:
            text = f"ensemble tensor {tensor} is mapping to non-existing input {own} in model {model.name}"
            raise ModelFailed(where + text)
    for own, entry in inputs.items():
        if own not in step.input_map and not entry.optional:
            raise ModelFailed(f"{where}input {own} in model {model.name} is not mapped to any ensemble tensors")
    for own, tensor in step.output_map.items():
        if own not in outputs:
            text = f"ensemble tensor {tensor} is mapped from non-existing output {own} in model {model.name}"
            raise ModelFailed(where + text)


def _check_types(where: str, known: dict[str, tuple[Any, Any]], tensor: str, entry: Any, model: Any) -> None:
    other, owner = known.setdefault(tensor, (entry, model))
    types = type(entry).DESCRIPTOR.fields_by_name["data_type"].enum_type.values_by_number
    if other.data_type != entry.data_type:
        raise ModelFailed(
            f"{where}: inconsistent data type: {types[other.data_type].name} is inferred from model {owner.name} while "
            f"{types[entry.data_type].name} is inferred from model {model.name}"
        )
    if bool(owner.max_batch_size) != bool(model.max_batch_size) or len(other.dims) != len(entry.dims):
        return  # the shapes of requests decide
    if any(first != second and -1 not in (first, second) for first, second in zip(other.dims, entry.dims, strict=True)):
        raise ModelFailed(
            f"{where}: inconsistent shape: {_dims(other)} is inferred from model {owner.name} while {_dims(entry)} is "
            f"inferred from model {model.name}"
        )


def _dims(entry: Any) -> str:
    return f"[{','.join(map(str, entry.dims))}]"
