"""Errors for models that are not where a user named them; their hints name the place where envpack sees some."""

from __future__ import annotations

import difflib
import itertools
import os
import shlex
from collections.abc import Iterator
from pathlib import Path

from envpack.repository.folders import looks_like_model
from envpack.support.errors import InputError
from envpack.support.folders import real_path

_MOST_FOLDERS = 500  # that are searched below a folder, which may be a home folder
_DEPTH = 2  # as in a project's folder with deploy/models
_MOST_NAMES = 5


def no_models(repository: Path) -> InputError:
    """The error for a repository without a Python model or ensemble."""
    if looks_like_model(repository):
        fix = f"give the folder that contains it: --repository {_shown(repository.absolute().parent)}"
        return InputError("repository-empty", "this folder is a model, not a model repository", fix, str(repository))
    below = next(_repositories_below(repository), None)
    example = "`envpack init FOLDER` creates a working example"
    fix = f"models are in {below.name}: add --repository {_shown(below)}" if below else example
    return InputError("repository-empty", "no Python model in this repository", fix, str(repository))


def no_such_model(folder: Path) -> InputError:
    """The error for a model whose folder does not exist."""
    repository, name = folder.parent, folder.name
    models = [model.name for model in _models_in(repository)]
    alike = difflib.get_close_matches(name, models, n=1)
    below = next((one for one in _repositories_below(repository) if _is_model(one / name)), None)
    if below:
        fix = f"it is in {below.name}: add --repository {_shown(below)}"
    elif alike:
        fix = f"did you mean {alike[0]}?"
    elif models:
        more = f" and {len(models) - _MOST_NAMES} more" if len(models) > _MOST_NAMES else ""
        fix = f"models of this repository: {', '.join(models[:_MOST_NAMES])}{more}"
    else:
        fix = "a model is a folder of the model repository; see --repository"
    return InputError("model-missing", f"model {name!r} not found", fix, str(folder))


def elsewhere(text: str, folder: Path, repository: Path) -> InputError | None:
    """The error for a path that a user gives as a model; None for a folder of the repository that may be one."""
    if any(_models_in(folder)) and not _is_model(folder):
        if real_path(folder) == real_path(repository):
            fix = "leave it out: without a name, all its models are meant"
            return InputError("other-repository", f"{text!r} is the model repository, and no model", fix)
        what = f"{text!r} is a model repository, not a model of the repository {repository}"
        return InputError("other-repository", what, f"add --repository {_shown(folder)} instead")
    if real_path(folder.parent) == real_path(repository):
        return None
    what = f"{text!r} is not in the model repository {repository}"
    fix = f"name a model of this repository, or add --repository {_shown(folder.parent)}"
    return InputError("other-repository", what, fix)


def _repositories_below(folder: Path) -> Iterator[Path]:
    """Folders with models below a folder, the nearest first."""
    level, left = [folder], _MOST_FOLDERS
    for _ in range(_DEPTH):
        level = list(itertools.islice((inner for one in level for inner in _folders_in(one)), left))
        left -= len(level)
        yield from (one for one in level if any(_models_in(one)))


def _models_in(repository: Path) -> Iterator[Path]:
    return (folder for folder in itertools.islice(_folders_in(repository), _MOST_FOLDERS) if _is_model(folder))


def _folders_in(folder: Path) -> Iterator[Path]:
    try:
        found = sorted(entry.path for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=False))
    except OSError:  # another user's, which is no place to point to
        return iter(())
    return (Path(path) for path in found if not os.path.basename(path).startswith("."))  # noqa: PTH119


def _is_model(folder: Path) -> bool:
    try:
        may_read = os.access(folder, os.R_OK | os.X_OK, effective_ids=True)
        return may_read and folder.is_dir() and looks_like_model(folder)
    except OSError:
        return False


def _shown(folder: Path) -> str:
    """A path as a shell takes it, from the current folder on if it is below that."""
    folder = folder.absolute()
    here = Path.cwd()
    return shlex.quote(str(folder.relative_to(here)) if folder.is_relative_to(here) else str(folder))
