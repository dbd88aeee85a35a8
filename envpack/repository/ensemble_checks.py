"""What a server checks of an ensemble before it loads it; read off a Triton 24.10 server."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from envpack.repository.config import ModelConfig


def flow_faults(config: ModelConfig) -> Iterator[str]:
    """What is wrong with the steps of an ensemble and the tensors between them, whatever the models are."""
    ensemble: Any = config
    if ensemble.platform != "ensemble" or ensemble.backend:
        yield 'an ensemble must have platform: "ensemble" and no backend'
    if ensemble.instance_group:
        yield "an ensemble has no instances, so it must not have instance_group"
    steps = ensemble.ensemble_scheduling.step
    if not steps:
        yield "the ensemble has no step in ensemble_scheduling"
        return
    incomplete = False
    for number, step in enumerate(steps):
        for field in ("model_name", "input_map", "output_map"):
            if not getattr(step, field):
                incomplete = True
                yield f"step {number} has no {field}"
    if not incomplete:
        yield from _tensor_faults(ensemble, steps)


def _tensor_faults(ensemble: Any, steps: Sequence[Any]) -> Iterator[str]:
    inputs = {entry.name for entry in ensemble.input}
    outputs = {entry.name for entry in ensemble.output}
    written = Counter(tensor for step in steps for tensor in step.output_map.values())
    read = {tensor for step in steps for tensor in step.input_map.values()}
    for tensor, count in written.items():
        if count > 1:
            yield f"{count} steps write the tensor {tensor!r}"
        if tensor not in read | outputs:
            yield f"no step reads the tensor {tensor!r}, and it is no output of the ensemble"
    for step in steps:
        for own, tensor in step.input_map.items():
            if tensor not in written and tensor not in inputs:
                yield f"the input {own!r} of {step.model_name} is the tensor {tensor!r}, which no step writes"
    for name in sorted(inputs - read):
        yield f"no step reads the input {name!r} of the ensemble"
    for name in sorted(outputs - written.keys()):
        yield f"no step writes the output {name!r} of the ensemble"
    if not read - inputs - written.keys():
        yield from _circle_faults(inputs, steps)


def _circle_faults(inputs: set[str], steps: Sequence[Any]) -> Iterator[str]:
    available, waiting = set(inputs), list(steps)
    while ready := [step for step in waiting if available.issuperset(step.input_map.values())]:
        waiting = [step for step in waiting if not available.issuperset(step.input_map.values())]
        available |= {tensor for step in ready for tensor in step.output_map.values()}
    if waiting:
        yield f"the steps {', '.join(step.model_name for step in waiting)} wait for each other's tensors"


def fit_faults(config: ModelConfig, models: Mapping[str, ModelConfig]) -> Iterator[str]:
    """What keeps an ensemble from being loaded with the models that its steps name, in the words of the server."""
    ensemble: Any = config
    known = {entry.name: (entry, ensemble) for entry in (*ensemble.input, *ensemble.output)}
    for step in ensemble.ensemble_scheduling.step:
        model: Any = models.get(step.model_name)
        if model is None:
            continue
        if 0 < model.max_batch_size < ensemble.max_batch_size:
            yield (
                f"ensemble {ensemble.name} allows maximum batch size {ensemble.max_batch_size}, but it contains model "
                f"{model.name} which only allows maximum batch size to be {model.max_batch_size}"
            )
        yield from _name_faults(ensemble, step, model)
        for entries, names in ((model.input, step.input_map), (model.output, step.output_map)):
            for entry in entries:
                if entry.name in names:
                    tensor = names[entry.name]
                    where = f"in ensemble {ensemble.name}, ensemble tensor {tensor}"
                    yield from _type_faults(where, *known.setdefault(tensor, (entry, model)), entry, model)


def _name_faults(ensemble: Any, step: Any, model: Any) -> Iterator[str]:
    inputs = {entry.name: entry for entry in model.input}
    outputs = {entry.name for entry in model.output}
    where = f"in ensemble {ensemble.name}, "
    for own, tensor in step.input_map.items():
        if own not in inputs:
            yield f"{where}ensemble tensor {tensor} is mapping to non-existing input {own} in model {model.name}"
    for own, entry in inputs.items():
        if own not in step.input_map and not entry.optional:
            yield f"{where}input {own} in model {model.name} is not mapped to any ensemble tensors"
    for own, tensor in step.output_map.items():
        if own not in outputs:
            yield f"{where}ensemble tensor {tensor} is mapped from non-existing output {own} in model {model.name}"


def _type_faults(where: str, other: Any, owner: Any, entry: Any, model: Any) -> Iterator[str]:
    types = type(entry).DESCRIPTOR.fields_by_name["data_type"].enum_type.values_by_number
    if other.data_type != entry.data_type:
        yield (
            f"{where}: inconsistent data type: {types[other.data_type].name} is inferred from model {owner.name} while "
            f"{types[entry.data_type].name} is inferred from model {model.name}"
        )
    first, second = _full_dims(other, owner), _full_dims(entry, model)
    if not _fit(other.dims, entry.dims) and not _fit(first, second):
        yield (
            f"{where}: inconsistent shape: {_shown(first)} is inferred from model {owner.name} while "
            f"{_shown(second)} is inferred from model {model.name}"
        )


def _full_dims(entry: Any, model: Any) -> list[int]:
    """The dimensions with that of the batch."""
    return [*([-1] if model.max_batch_size > 0 else []), *entry.dims]


def _fit(first: Sequence[int], second: Sequence[int]) -> bool:
    return len(first) == len(second) and all(a == b or -1 in (a, b) for a, b in zip(first, second, strict=True))


def _shown(dims: Sequence[int]) -> str:
    return f"[{','.join(map(str, dims))}]"
