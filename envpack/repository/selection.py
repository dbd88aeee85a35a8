"""The models of a repository: those that a user names, or all, and those that ensembles need."""

from __future__ import annotations

import graphlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from envpack.repository.folders import elsewhere, find_folder, looks_like_model, no_models, repository_missing
from envpack.repository.model import Model, examine_model, not_in_python, open_model
from envpack.support.errors import EnvpackError, InputError, system_error


def find_cycles(steps: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, ...]]:
    """Circles of ensembles that run each other, each from its first model back to it; no model is in two."""
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
    what = f"the ensembles {' -> '.join(circle)} run each other"
    fix = "remove one of them from the steps of another"
    return InputError("ensemble-cycle", what, fix, str(models[circle[0]].folder))


def in_loading_order(
    wanted: Sequence[Model],
    model_named: Callable[[str], Model | None],
    called: Callable[[Model], Sequence[str]] = lambda _: (),
    may_call_any: Callable[[Model], bool] = lambda _: False,
) -> tuple[Model, ...]:
    """Models and those that they run or call, each after those that it needs; code may call in a circle."""
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


def chosen_folders(repository: Path, names: Sequence[str]) -> tuple[str, ...]:
    """The names of folders of Python models and ensembles whose content may be wrong: those given, or all."""
    for name in names:
        model, faults = examine_model(repository / name)
        if model is not None and model.is_foreign:
            raise not_in_python(model)
        for fault in (fault for fault in faults if fault.kind == "model-missing"):
            raise fault
    chosen = names or [folder.name for folder in model_folders(repository) if not _is_foreign(folder)]
    if not chosen:
        raise no_models(repository)
    return tuple(chosen)


def _is_foreign(folder: Path) -> bool:
    try:
        model = examine_model(folder)[0]
    except OSError:  # an error of the work on this model
        return False
    return model is not None and model.is_foreign


def model_folders(repository: Path) -> list[Path]:
    """The folders of a repository that hold models of any backend, sorted."""
    if not repository.is_dir():
        raise repository_missing(repository)
    folders = sorted(repository.iterdir())
    return [f for f in folders if not f.name.startswith(".") and f.is_dir() and looks_like_model(f)]


def examine_readable(folder: Path) -> tuple[Model | None, tuple[EnvpackError, ...]]:
    """As `examine_model`; what this user may not read is an error of this model alone, and not raised."""
    try:
        return examine_model(folder)
    except OSError as error:
        explained = system_error(error)
        if explained is None:
            raise
        return None, (explained,)


def open_models(repository: Path, names: Sequence[str] = ()) -> tuple[dict[str, Model], dict[str, EnvpackError]]:
    """Named models, or all, with those that they run, of any backend; and errors of others, by their folders' names."""
    pending = [model_name(repository, name) for name in names] or [folder.name for folder in model_folders(repository)]
    if not pending:
        raise no_models(repository)
    models: dict[str, Model] = {}
    errors: dict[str, EnvpackError] = {}
    while pending:
        name = pending.pop(0)
        if name in models or name in errors:
            continue
        model, faults = examine_readable(repository / name)
        if any(fault.kind == "model-missing" for fault in faults):
            raise faults[0]
        if faults or model is None:
            errors[name] = faults[0]
        else:
            models[name] = model
            pending += [step for step in model.steps if find_folder(repository, step)]
    for circle in find_cycles({name: models[name].steps for name in sorted(models)}):
        errors |= dict.fromkeys(circle, cycle_error(circle, models))
    return {name: model for name, model in models.items() if name not in errors}, errors


def named_models(repository: Path, names: Sequence[str]) -> tuple[Model, ...]:
    """The models that a user names; without names, every Python model and ensemble of the repository, sorted."""
    if names:
        return tuple(open_model(repository / model_name(repository, name)) for name in dict.fromkeys(names))
    models = tuple(open_model(folder) for folder in model_folders(repository) if not _is_foreign(folder))
    if not models:
        raise no_models(repository)
    return models


def model_name(repository: Path, text: str) -> str:
    name = text.rstrip("/")
    plain = "/" not in name and name not in ("", ".", "..")
    # Links stay: the server sees the name in the repository.
    folder = repository / name if plain else Path(os.path.abspath(text))  # noqa: PTH100
    if error := elsewhere(text, folder, repository):
        raise error
    return name if plain else folder.name
