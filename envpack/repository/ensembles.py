"""The models that others need: circles of ensembles, and an order of loading."""

from __future__ import annotations

import graphlib
from collections.abc import Callable, Iterator, Mapping, Sequence

from envpack.repository.model import Model
from envpack.support.errors import InputError


def find_cycles(steps: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, ...]]:
    """Circles of ensembles that run each other; no model is in two of them.

    Yields a model, the one that it runs, and so on back to the first, which is the first of ``steps`` in the
    circle.
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
