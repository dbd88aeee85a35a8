"""The models that the tests of one run of pytest use."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from envpack.repository import looks_like_model
from envpack.settings import FILE_NAME, Project, open_project
from envpack.support.errors import EnvpackError
from envpack.testing.local_models import LocalModels
from envpack.testing.model import ModelUnderTest
from envpack.testing.models import ModelError, Models
from envpack.testing.source_changes import SourceChanges

__tracebackhide__ = True  # pytest shows the line of the test instead


class _Repository:
    """The models of one repository. What failed is not tried again for each test."""

    def __init__(self, project: Project, open_models: Callable[[Project], Models]) -> None:
        self._folder = project.repository
        self._changes = SourceChanges(project.repository)
        self._failures: dict[str, EnvpackError] = {}
        self.models = open_models(project)

    def load(self, name: str) -> None:
        """Load a model; anew if its sources changed."""
        for changed in self._changes.since_last():
            self._failures.pop(changed, None)
            self.models.forget(changed)
        names = sorted(entry.name for entry in self._folder.iterdir() if entry.is_dir() and looks_like_model(entry))
        if name not in names:
            known = ", ".join(names) or "no models"
            raise ModelError(f"Request for unknown model: '{name}' is not found. {self._folder} has {known}")
        if name in self._failures:
            raise self._failures[name]
        try:
            self.models.load(name)
        except EnvpackError as error:
            self._failures[name] = error
            raise


class Session:
    """The models of all repositories whose tests run."""

    def __init__(self, *, on_server: bool, server: Path | None, timeout: float) -> None:
        self._timeout = timeout
        self._on_server = on_server
        self._server = server
        self._repositories: dict[Path, _Repository | EnvpackError] = {}

    def models_for(self, repository: Path | None, test: Path) -> Callable[[str], ModelUnderTest]:
        """What a test gets as ``triton_model``."""
        opened = self._opened(repository or repository_above(test))
        if isinstance(opened, EnvpackError):
            raise _failure(opened)
        since = opened.models.position()

        def triton_model(name: str) -> ModelUnderTest:
            try:
                opened.load(name)
            except EnvpackError as error:
                raise _failure(error) from None
            return ModelUnderTest(name, opened.models, since)

        return triton_model

    def close(self) -> None:
        """Stop all models."""
        for opened in self._repositories.values():
            if isinstance(opened, _Repository):
                opened.models.close()
        self._repositories.clear()

    def _opened(self, folder: Path) -> _Repository | EnvpackError:
        key = folder.resolve()
        if key not in self._repositories:
            try:
                self._repositories[key] = _Repository(open_project(folder), self._models)
            except EnvpackError as error:
                self._repositories[key] = error
        return self._repositories[key]

    def _models(self, project: Project) -> Models:
        if not self._on_server:
            return LocalModels(project, self._timeout)
        from envpack.testing.served_models import ServedModels

        return ServedModels(project, self._server, self._timeout)


def repository_above(test: Path) -> Path:
    """The nearest folder above a test that holds ``envpack.toml`` or model folders; the test's own if there is none."""
    for folder in test.parents:
        if (folder / FILE_NAME).is_file() or _holds_models(folder):
            return folder
    return test.parent


def _holds_models(folder: Path) -> bool:
    try:
        return any(looks_like_model(entry) for entry in folder.iterdir() if entry.is_dir())
    except OSError:
        return False


def _failure(error: EnvpackError) -> BaseException:
    """What ends a test with the lines that a command would print, without a traceback."""
    place = f"{error.where}: " if error.where else ""
    hint = f"\n  fix: {error.hint}" if error.hint else ""
    return pytest.fail.Exception(f"{place}{error.message} ({error.kind}){hint}", pytrace=False)
