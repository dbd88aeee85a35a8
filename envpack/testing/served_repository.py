"""The repository that a server loads from for `envpack test` and `envpack run`: the user's, by links, with environments
for the models that have none. The user's repository is not changed.
"""

from __future__ import annotations

import copy
import shutil
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

from envpack.local import check_placed_environment, python_of
from envpack.repository import (
    CONFIG_NAME,
    PYTHON_BACKEND,
    SHELL_CHARACTER,
    STUB_NAME,
    Model,
    backends_folder,
    called_models,
    needed_first,
    open_model,
)
from envpack.settings import Project
from envpack.support.errors import InputError
from envpack.support.folders import real_path
from envpack.support.progress import Progress
from envpack.support.replacement import remove_folder

if TYPE_CHECKING:
    from envpack.store import SharedStore

_ENVIRONMENT = "EXECUTION_ENV_PATH"


class ServedRepository:
    """A folder of links to the models of a project."""

    def __init__(self, project: Project, folder: Path, progress: Progress, store: SharedStore | None = None) -> None:
        self.folder = folder
        self._project, self._progress, self._store = project, progress, store
        folder.mkdir()
        for entry in project.repository.iterdir():  # a model may read what lies beside its folder
            (folder / entry.name).symlink_to(entry.absolute())

    def place(self, name: str, *, besides: Collection[str] = ()) -> tuple[str, ...]:
        """Place a model as it is now, and what it runs and calls besides, each with an environment.

        Returns the names of all these, each after those that it needs.
        """
        models = {name: open_model(self._project.repository / name, foreign=True)}

        def needs(name: str) -> tuple[str, ...]:
            models.setdefault(name, open_model(self._project.repository / name, foreign=True))
            steps = [step for step in models[name].steps if (self._project.repository / step).is_dir()]
            return (*steps, *called_models(models[name].folder))

        ordered = needed_first([name], needs)
        for needed in ordered:
            if needed not in besides:  # a server has them loaded
                self._place(models[needed])
        return ordered

    def here(self, text: str) -> str:
        """A text of the server with the paths of the user's repository."""
        return text.replace(f"{self.folder}/", f"{self._project.repository.absolute()}/")

    def model(self, name: str) -> Model:
        """A placed model, as the server has it."""
        return open_model(self.folder / name, foreign=True)

    def _place(self, model: Model) -> None:
        made = self.folder / model.folder.name
        if made.is_symlink():
            made.unlink()
        elif made.is_dir():
            remove_folder(made)
        made.mkdir()
        own = () if self._is_complete(model) else (CONFIG_NAME, STUB_NAME)
        for entry in model.folder.iterdir():
            if entry.name not in own:
                (made / entry.name).symlink_to(entry.absolute())
        if own:
            self._complete(model, made)

    def _is_complete(self, model: Model) -> bool:
        """Whether a server finds all that the model needs: the environment that the configuration names, and a stub,
        which is the server's own if the model has none.
        """
        if model.is_ensemble or model.is_foreign:
            return True
        check_placed_environment(self._project, model)
        has_backend = model.backend != PYTHON_BACKEND and (backends_folder(self._project) / model.backend).is_dir()
        placed = model.environment
        if placed is None:
            return has_backend
        return placed.is_file() or (placed.exists() and (has_backend or model.backend == PYTHON_BACKEND))

    def _complete(self, model: Model, made: Path) -> None:
        """Let a model run on its environment in the cache, which is made if need be."""
        python = python_of(self._project, model, self._progress, self._store)
        _check_path(python.prefix)
        config = copy.deepcopy(model.config)
        config.backend = PYTHON_BACKEND
        config.parameters[_ENVIRONMENT].string_value = str(python.prefix)
        (made / CONFIG_NAME).write_text(str(config), encoding="utf-8")
        shutil.copy2(python.stub, made / STUB_NAME)


def _check_path(prefix: Path) -> None:
    """Refuse an environment in a cache whose path a shell splits: a server would wait forever."""
    unsafe = SHELL_CHARACTER.search(str(real_path(prefix)))
    if unsafe:
        what = f"the path of the cache contains {unsafe.group()!r}, and servers pass it to a shell unquoted"
        fix = "set ENVPACK_CACHE_DIR to a path of letters, digits, '/', '_', '-' and '.'"
        raise InputError("bad-path", what, fix, str(prefix))
