"""The models that ensembles run: circles among them, and an order in which they can be loaded."""

from __future__ import annotations

import graphlib
from collections.abc import Callable, Iterator, Mapping, Sequence

from envpack.repository.model import Model
from envpack.support.errors import InputError


def find_cycles(steps: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, ...]]:
    """Circles of ensembles that run each other; no model is in two of them.

    Args:
        steps: the models that each model runs, by name; names that are no key run nothing.

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


def in_loading_order(wanted: Sequence[Model], model_named: Callable[[str], Model | None]) -> tuple[Model, ...]:
    """Models and those that they run, each after those that it runs.

    Args:
        wanted: the models.
        model_named: finds a model that another runs; None if the repository does not have it.

    Raises:
        InputError: ensembles run each other (``ensemble-cycle``), or what ``model_named`` raises.
    """
    known = {model.name: model for model in wanted}
    pending = list(wanted)
    while pending:
        for step in pending.pop().steps:
            found = None if step in known else model_named(step)
            if found is not None:
                known[step] = found
                pending.append(found)
    for circle in find_cycles({name: model.steps for name, model in known.items()}):
        raise InputError(
            f"the ensembles {' -> '.join(circle)} run each other",
            kind="ensemble-cycle",
            where=str(known[circle[0]].folder),
            hint="remove one of them from the steps of another",
        )
    ordered: dict[str, Model] = {}
    stack = list(reversed(wanted))
    while stack:
        model = stack[-1]
        missing = [known[step] for step in model.steps if step in known and step not in ordered]
        if missing:
            stack += reversed(missing)
        else:
            ordered.setdefault(model.name, model)
            stack.pop()
    return tuple(ordered.values())
