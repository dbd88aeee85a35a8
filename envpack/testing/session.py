"""The models that the tests of one run of pytest use."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import pytest

from envpack.repository.folders import Stamps, is_readable_model, source_stamps
from envpack.repository.selection import model_folders
from envpack.settings.project import FILE_NAME, Project, open_project
from envpack.settings.table import Settings
from envpack.support.errors import EnvpackError
from envpack.support.folders import real_path
from envpack.testing.model import ModelError, Models, ModelUnderTest
from envpack.testing.opening import find_runtime, open_models

__tracebackhide__ = True  # pytest shows the line of the test instead


class SourceChanges:
    """The sources of all models of a repository."""

    def __init__(self, repository: Path) -> None:
        self._repository = repository
        self._states = self._read()

    def since_last(self) -> list[str]:
        """Names of the models whose sources changed since the last call, or since the beginning."""
        before, self._states = self._states, self._read()
        return sorted(
            name for name in before.keys() | self._states.keys() if before.get(name) != self._states.get(name)
        )

    def _read(self) -> dict[str, Stamps]:
        return {folder.name: source_stamps(folder, "*.py") for folder in self._repository.iterdir() if folder.is_dir()}


class _Repository:
    """The models of one repository. What failed is not tried again for each test."""

    def __init__(self, project: Project, open_models: Callable[[Project], Models]) -> None:
        self._folder = project.repository
        self._changes = SourceChanges(project.repository)
        self._failures: dict[str, EnvpackError] = {}
        self._open = functools.partial(open_models, project)

    @functools.cached_property
    def models(self) -> Models:
        """What runs the models: a server that is started when a test uses a model, or none."""
        return self._open()

    @property
    def is_open(self) -> bool:
        return "models" in self.__dict__

    def load(self, name: str) -> None:
        for changed in self._changes.since_last():
            self._failures.pop(changed, None)
            if self.is_open:
                self.models.forget(changed)
        names = [folder.name for folder in model_folders(self._folder)]
        if name not in names:
            known = ", ".join(names) or "no models"
            raise ModelError(f"there is no model '{name}': {self._folder} has {known}")
        if name in self._failures:
            raise self._failures[name]
        try:
            self.models.load(name)
        except EnvpackError as error:
            self._failures[name] = error
            raise


class LoadedModels:
    """What a test gets as ``triton_model``: loads a model by its name."""

    def __init__(self, repository: _Repository, since: int) -> None:
        self._repository, self.since = repository, since

    def __call__(self, name: str) -> ModelUnderTest:
        try:
            self._repository.load(name)
        except EnvpackError as error:
            raise _failure(error) from None
        return ModelUnderTest(name, self._repository.models, self.since)


class Session:
    """The models of all repositories whose tests run."""

    def __init__(self, said: Settings, *, is_local: bool) -> None:
        self._said = said
        self._is_local = is_local
        self._repositories: dict[Path, _Repository | EnvpackError] = {}

    def models_for(self, repository: Path | None, test: Path) -> LoadedModels:
        opened = self._opened(repository or repository_above(test))
        if isinstance(opened, EnvpackError):
            raise _failure(opened)
        return LoadedModels(opened, opened.models.position() if opened.is_open else 0)

    def printed(self, test: Path, repository: Path | None, since: int) -> str:
        """What the server of a test's repository and its models have printed since a position of their log."""
        opened = self._repositories.get(real_path(repository or repository_above(test)))
        return opened.models.printed(since) if isinstance(opened, _Repository) and opened.is_open else ""

    def kill(self) -> None:
        for opened in self._repositories.values():
            if isinstance(opened, _Repository) and opened.is_open:
                opened.models.kill()

    def close(self) -> None:
        for opened in self._repositories.values():
            if isinstance(opened, _Repository) and opened.is_open:
                opened.models.close()
        self._repositories.clear()

    def _opened(self, folder: Path) -> _Repository | EnvpackError:
        key = real_path(folder)
        if key not in self._repositories:
            try:
                self._repositories[key] = _Repository(open_project(folder, self._said), self._models)
            except EnvpackError as error:
                self._repositories[key] = error
        return self._repositories[key]

    def _models(self, project: Project) -> Models:
        return open_models(project, None if self._is_local else find_runtime(project), timeout=project.of().timeout)


def repository_above(test: Path) -> Path:
    """The nearest folder above a test that holds ``envpack.toml`` or model folders; the test's own if there is none."""
    for folder in test.parents:
        if (folder / FILE_NAME).is_file() or _holds_models(folder):
            return folder
    return test.parent


def _holds_models(folder: Path) -> bool:
    try:
        return any(map(is_readable_model, folder.iterdir()))
    except OSError:
        return False


def _failure(error: EnvpackError) -> BaseException:
    """What ends a test with the lines that a command would print, without a traceback."""
    place = f"{error.where}: " if error.where else ""
    hint = f"\n  fix: {error.hint}" if error.hint else ""
    return pytest.fail.Exception(f"{place}{error.message} ({error.kind}){hint}", pytrace=False)
