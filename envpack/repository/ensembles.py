"""The models that others need: circles of ensembles, an order of loading, and what keeps an ensemble from running."""

from __future__ import annotations

import graphlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from envpack.repository.config import ModelConfig
from envpack.repository.model import Model
from envpack.support.errors import InputError


def find_cycles(steps: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, ...]]:
    """Circles of ensembles that run each other; no model is in two of them.

    Yields:
        A model, the one that it runs, and so on back to the first, which is the first of ``steps`` in the circle.
    """
    remaining = dict(steps)
    places = {name: place for place, name in enumerate(steps)}
    while True:
        try:
            graphlib.TopologicalSorter(remaining).prepare()
        except graphlib.CycleError as error:
            circle: list[str] = error.args[1][:0:-1]
            first = circle.index(min(circle, key=places.__getitem__))
            yield (*circle[first:], *circle[:first], circle[first])
            for name in circle:
                del remaining[name]
        else:
            return


def cycle_error(circle: Sequence[str], models: Mapping[str, Model]) -> InputError:
    """The error for ensembles that run each other, which `find_cycles` found among these models."""
    what = f"the ensembles {' -> '.join(circle)} run each other"
    fix = "remove one of them from the steps of another"
    return InputError("ensemble-cycle", what, fix, str(models[circle[0]].folder))


def in_loading_order(
    wanted: Sequence[Model],
    model_named: Callable[[str], Model | None],
    called: Callable[[Model], Sequence[str]] = lambda _: (),
    may_call_any: Callable[[Model], bool] = lambda _: False,
) -> tuple[Model, ...]:
    """Models and those that they need, each after those that it needs.

    An ensemble needs the models that it runs, and code the models that it calls. Code may call in a circle.
    """
    known = {model.name: model for model in wanted}
    needs: dict[str, tuple[str, ...]] = {}
    pending = list(wanted)
    while pending:
        model = pending.pop()
        needs[model.name] = tuple(dict.fromkeys((*model.steps, *called(model))))
        for name in needs[model.name]:
            found = None if name in known else model_named(name)
            if found is not None:
                known[name] = found
                pending.append(found)
    for circle in find_cycles({name: model.steps for name, model in known.items()}):
        raise cycle_error(circle, known)
    callers = {name for name, model in known.items() if may_call_any(model)}

    def is_late(name: str) -> bool:
        return not callers.isdisjoint(needed_first([name], lambda needed: needs.get(needed, ())))

    names = [model.name for model in wanted]
    names.sort(key=is_late)
    names = list(needed_first(names, lambda name: needs.get(name, ())))
    return tuple(known[name] for name in names if name in known)


def needed_first(wanted: Sequence[str], needs: Callable[[str], Sequence[str]]) -> tuple[str, ...]:
    """Names and those that they need, each after those that it needs, as far as these do not need it themselves."""
    ordered: dict[str, None] = {}
    entered: set[str] = set()  # those that are not ordered yet are on the way from a wanted name to the current one
    stack = list(reversed(wanted))
    while stack:
        entered.add(name := stack[-1])
        missing = [needed for needed in needs(name) if needed not in entered]
        if missing:
            stack += reversed(missing)
        else:
            ordered.setdefault(name)
            stack.pop()
    return tuple(ordered)


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
