"""A server on which models are loaded again whenever they change."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from envpack.development.changes import Change, snapshot, watch
from envpack.development.state import ModelState, Phase
from envpack.project import Project
from envpack.repository import Model, called_models, in_loading_order, named_models, open_model
from envpack.server import Client, RequestError, Runtime, Server
from envpack.support.errors import EnvpackError
from envpack.support.progress import Progress
from envpack.verification import instances
from envpack.workflow import BuildOptions, build_model

_LOAD_SECONDS = 600.0
_LOOK_SECONDS = 1.0


@dataclass
class _Counts:
    """What a server had counted for a model at the last look."""

    at: float = 0.0
    requests: int = 0
    nanoseconds: int = 0


class Session:
    """Models on a server, which are built and loaded again when they change.

    Args:
        project: the model repository and its settings.
        names: of the models; those that their ensembles run are loaded as well. Empty for all.
        options: how to build.
        runtime: runs the server.
        show: called after each change of what is known, and once in a second.
        progress: receives the steps of builds.

    Raises:
        InputError: a model is wrong, or there is none.

    """

    def __init__(
        self,
        project: Project,
        names: Sequence[str],
        options: BuildOptions,
        runtime: Runtime,
        *,
        show: Callable[[], None],
        progress: Progress,
    ) -> None:
        self._project, self._options, self._runtime = project, options, runtime
        self._show, self._progress = show, progress
        chosen = named_models(project.repository, names)
        folder = project.repository
        ordered = in_loading_order(
            chosen,
            lambda name: open_model(folder / name) if (folder / name).is_dir() else None,
            lambda model: called_models(model.folder),
        )
        self._models: dict[str, Model] = {model.name: model for model in ordered}
        self._counts = {name: _Counts() for name in self._models}
        self._server: Server | None = None
        self.states = {name: ModelState(name) for name in self._models}
        self.url = ""

    def run(self, stop: threading.Event) -> None:
        """Build and load all models, then wait for changes until `stop` is set or Ctrl-C is pressed.

        Raises:
            ServerError: the server cannot be started.

        """
        for name in self._models:
            self._build(name)
        with self._runtime.start(self._project.repository) as server:
            self._server, self.url = server, server.url
            client = Client(server.url)
            before = snapshot(self._project, self._models)
            for name in self._models:
                self._load(client, name, time.monotonic())
            for changes in watch(self._project, self._models, stop, _LOOK_SECONDS, before):
                for change in changes:
                    self._follow(client, change)
                self._look(client, server)

    def log(self) -> str:
        """What the server and the models have written so far."""
        return self._server.log() if self._server is not None else ""

    def _follow(self, client: Client, change: Change) -> None:
        """Load a changed model again, and the ensembles that run it."""
        started = time.monotonic()
        if change.requires_build and not self._build(change.model):
            return
        self._load(client, change.model, started)
        for name, model in self._models.items():
            if change.model in model.steps:
                self._load(client, name, started)

    def _build(self, name: str) -> bool:
        """Build a model's environment, if it has one; whether that succeeded."""
        if self._models[name].is_ensemble:
            return True
        self._enter(name, "building")
        try:
            build_model(self._project, self._models[name].folder.name, self._options, self._progress)
            self._models[name] = open_model(self._models[name].folder)
        except EnvpackError as error:
            self._enter(name, "failed", error.message)
            return False
        self._enter(name, "waiting")
        return True

    def _load(self, client: Client, name: str, started: float) -> None:
        state = self.states[name]
        if state.phase == "failed" and not state.loads:
            return  # it has no environment
        self._enter(name, "loading")
        try:
            client.load(name, timeout=_LOAD_SECONDS)
        except RequestError as error:
            self._enter(name, "failed", error.message, started)
            return
        state.loads += 1
        self._counts[name] = _Counts(time.monotonic())
        self._enter(name, "ready", "", started)

    def _enter(self, name: str, phase: Phase, error: str = "", started: float | None = None) -> None:
        state = self.states[name]
        state.phase, state.error = phase, error
        if started is not None:
            state.seconds = time.monotonic() - started
        self._show()

    def _look(self, client: Client, server: Server) -> None:
        for name, state in self.states.items():
            if state.phase == "ready":
                self._count(client, name, state)
                state.memory = tuple(server.memory_bytes(found.worker.pid) for found in instances(server, name))
        self._show()

    def _count(self, client: Client, name: str, state: ModelState) -> None:
        try:
            (entry, *_) = client.statistics(name)["model_stats"]
        except (RequestError, KeyError, ValueError):
            return
        now, before = time.monotonic(), self._counts[name]
        requests, nanoseconds = _totals(entry)
        new = requests - before.requests
        state.requests = requests
        state.per_second = new / max(now - before.at, 1e-3)
        state.latency = (nanoseconds - before.nanoseconds) / new / 1e9 if new > 0 else 0.0
        self._counts[name] = _Counts(now, requests, nanoseconds)


def _totals(entry: dict[str, Any]) -> tuple[int, int]:
    """How many requests a model has answered, and the nanoseconds that they took."""
    success = entry.get("inference_stats", {}).get("success", {})
    return int(success.get("count", 0)), int(success.get("ns", 0))
