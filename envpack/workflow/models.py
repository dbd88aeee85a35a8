"""The models that a command line names."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from envpack.repository import chosen_folders as _chosen, looks_like_model, model_name, open_model
from envpack.settings import Project


def model_names(project: Project, names: Sequence[str]) -> tuple[str, ...]:
    """The folder names of models that are named by them or by a path, each once; none stands for all."""
    return tuple(dict.fromkeys(model_name(project.repository, name) for name in names))


def chosen_folders(project: Project, names: Sequence[str]) -> list[str]:
    """The folder names of the models to work on, by default all; the content of their folders may be wrong."""
    return list(_chosen(project.repository, model_names(project, names)))


def check_model(project: Project, name: str, *, foreign: bool = False) -> None:
    """Raise what is wrong with the files of a model, before any work on it."""
    open_model(project.repository / name, foreign=foreign)


def complete_names(repository: Path, incomplete: str) -> list[str]:
    """Names of models that begin as typed; nothing where the repository cannot be read."""
    try:
        folders = sorted(repository.iterdir())
        return [folder.name for folder in folders if folder.name.startswith(incomplete) and looks_like_model(folder)]
    except OSError:
        return []
