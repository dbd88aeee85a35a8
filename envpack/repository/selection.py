"""The models of a repository: those that a user names, or all."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from envpack.repository.ensembles import cycle_error, find_cycles
from envpack.repository.folders import find_folder, looks_like_model
from envpack.repository.model import Model, examine_model, not_in_python, open_model
from envpack.repository.nearby import elsewhere, no_models
from envpack.support.errors import EnvpackError, InputError
from envpack.support.failures import storage_error


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
        fix = "give the folder that contains the model folders with --repository"
        raise InputError("repository-missing", "model repository not found", fix, str(repository))
    folders = sorted(repository.iterdir())
    return [f for f in folders if not f.name.startswith(".") and f.is_dir() and looks_like_model(f)]


def examine_readable(folder: Path) -> tuple[Model | None, tuple[EnvpackError, ...]]:
    """As `examine_model`; what this user may not read is an error of this model alone, and not raised."""
    try:
        return examine_model(folder)
    except OSError as error:
        explained = storage_error(error)
        if explained is None:
            raise
        return None, (explained,)


def open_models(repository: Path, names: Sequence[str] = ()) -> tuple[dict[str, Model], dict[str, EnvpackError]]:
    """Models of any backend, as far as they can be read: those that are named and the ones that they run, or all.

    Returns the models, and the errors of the others, each by the name of its folder; the named ones come first.
    """
    pending = list(names) or [folder.name for folder in model_folders(repository)]
    if not pending:
        raise no_models(repository)
    models: dict[str, Model] = {}
    errors: dict[str, EnvpackError] = {}
    while pending:
        name = pending.pop(0)
        if name in models or name in errors:
            continue
        try:
            models[name] = open_model(repository / name, foreign=True)
        except InputError as error:
            if error.kind == "model-missing":
                raise
            errors[name] = error
        except OSError as error:
            explained = storage_error(error)
            if explained is None:
                raise
            errors[name] = explained
        else:
            pending += [step for step in models[name].steps if find_folder(repository, step)]
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
    """The folder name of the model that a user names, by that name or by a path to its folder."""
    name = text.rstrip("/")
    plain = "/" not in name and name not in ("", ".", "..")
    # Links stay: the server sees the name in the repository.
    folder = repository / name if plain else Path(os.path.abspath(text))  # noqa: PTH100
    if error := elsewhere(text, folder, repository):
        raise error
    return name if plain else folder.name
