"""The models of a session, as their files describe them now, and what is known of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Literal

from envpack.repository.code import called_models
from envpack.repository.folders import find_folder, no_models
from envpack.repository.model import Model, not_in_python
from envpack.repository.selection import examine_readable, model_folders, needed_first
from envpack.support.errors import EnvpackError, InputError

Phase = Literal["waiting", "building", "loading", "attaching", "ready", "failed", "removed"]


@dataclass
class ModelState:
    """A model that is being worked on."""

    name: str
    _: KW_ONLY
    phase: Phase = "waiting"  # what happens to it; "attaching" while its instance waits for a debugger
    error: str = ""  # why it failed: the first line says what is wrong, the next ones where in the model's code
    # The error of the last request that failed since it was loaded, in the same form; only if envpack's stub runs it.
    request_error: str = ""
    serves: bool = False  # whether the server answers requests to it; after a failure, with what it had before
    loads: int = 0  # how often it was loaded
    seconds: float = 0.0  # from the moment when a change was noticed to the end of what it caused
    requests: int = 0  # how many requests it has answered since it was loaded
    failures: int = 0  # how many requests to it have failed since then
    per_second: float = 0.0  # requests in a second, since the last look
    latency: float = 0.0  # mean time of a request in seconds, since the last look; 0 without requests
    own_writes: tuple[str, ...] = ()  # files in its folder that it writes itself, which load nothing
    memory: tuple[int, ...] = ()  # memory of each instance in bytes, with its share of what it shares with others (PSS)


class ServedModels:
    """Models of a repository and those that they need."""

    def __init__(self, repository: Path, names: Sequence[str]) -> None:
        self._repository = repository
        self._names = tuple(names)
        self._models: dict[str, Model | None] = {}
        self._faults: dict[str, str] = {}
        self._others: set[str] = set()  # models of other backends
        self._gone: set[str] = set()
        missing = [name for name in names if self.is_gone(name)]
        for fault in (fault for name in missing for fault in examine_readable(repository / name)[1]):
            raise fault
        self.refresh()
        for model in (examine_readable(repository / name)[0] for name in names):
            if model is not None and model.is_foreign:
                raise not_in_python(model)
        if not self._models:
            model_folders(repository)  # a repository that does not exist is an error of its own
            raise no_models(repository)

    def refresh(self) -> None:
        """Read the configurations again; until they are read, other threads find the models as they were."""
        models: dict[str, Model | None] = {}
        faults: dict[str, str] = {}
        others: set[str] = set()
        pending = list(self._names or self._all())
        while pending:
            name = pending.pop(0)
            if name in models:
                continue
            model, found = examine_readable(self._repository / name)
            if model is not None and model.is_foreign:
                if not self._names:
                    others.add(name)
                    continue
                found = (not_in_python(model), *found)
            models[name] = None if found else model
            if found:
                faults[name] = in_lines(found[0])
            pending += [needed for needed in _needs(models[name]) if not self.is_gone(needed)]
        self._models, self._faults, self._others = models, faults, others
        self._gone = set(filter(self.is_gone, models))

    def would_change(self) -> bool:
        """Whether folders of models have come or gone, as far as their names tell."""
        if any(self.is_gone(name) != (name in self._gone) for name in self._models):
            return True
        return not self._names and bool(set(self._all()) - self._models.keys() - self._others)

    def is_gone(self, name: str) -> bool:
        return not self._repository.is_dir() or find_folder(self._repository, name) is None

    def order(self) -> tuple[str, ...]:
        """All names, each after those that it needs."""
        return tuple(name for name in needed_first(list(self._models), self.needs) if name in self._models)

    def model(self, name: str) -> Model | None:
        return self._models.get(name)

    def fault(self, name: str) -> str:
        """What is wrong with the files of a model, the problem in the first line; ``""`` for nothing."""
        return self._faults.get(name, "")

    def models(self) -> tuple[Model, ...]:
        """Those whose configuration can be read."""
        return tuple(model for model in self._models.values() if model is not None)

    def needs(self, name: str) -> tuple[str, ...]:
        """The models that a model runs, or that its code calls."""
        return _needs(self._models.get(name))

    def affected_by(self, name: str) -> tuple[str, ...]:
        """A model and the ensembles that run it, also through another ensemble, in loading order."""
        found = {name}
        for other in self.order():
            model = self._models[other]
            if model is not None and found.intersection(model.steps):
                found.add(other)
        return tuple(other for other in self.order() if other in found)

    def _all(self) -> list[str]:
        try:
            return [folder.name for folder in model_folders(self._repository)]
        except (InputError, OSError):
            return []


def _needs(model: Model | None) -> tuple[str, ...]:
    return (*model.steps, *called_models(model.folder)) if model is not None else ()


def in_lines(error: EnvpackError) -> str:
    parts = (error.message, error.where, f"fix: {error.hint}" if error.hint else "")
    return "\n".join(part for part in parts if part)
