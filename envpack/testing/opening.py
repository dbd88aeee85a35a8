"""Decides where models run: on a real server, whenever one can be started; or locally, as `LocalModels`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from envpack.local.model_config import config_json
from envpack.local.model_process import LogLine, ModelFailed
from envpack.local.running import local_server
from envpack.local.server import LocalServer
from envpack.local.values import NOTHING, Request, Response
from envpack.repository.placement import backends_folder
from envpack.repository.selection import examine_readable, model_folders
from envpack.server.choice import OF_EVERY_SERVER, ServerSpec, choose_runtime
from envpack.server.interface import Runtime
from envpack.server.launch import find_server
from envpack.settings.project import Project
from envpack.support.errors import ServerError
from envpack.support.folders import cache_folder, real_path
from envpack.support.progress import SILENT, Progress
from envpack.testing.model import ModelError, Models
from envpack.testing.trial import fix_of

if TYPE_CHECKING:
    from envpack.store.shared import SharedStore

# The server binds a free port.
GRPC_ARGUMENTS = ("--allow-grpc=true", "--grpc-address=127.0.0.1", "--grpc-port=0")
LOCALLY = "locally, without a server"


def find_runtime(project: Project) -> Runtime | None:
    """The server that can be started: the one that is named or installed, else a container whose image is here."""
    said = project.of()
    try:
        find_server(said.server)
        is_installed = True
    except ServerError:
        if said.server is not None:
            raise
        is_installed = False
    models = tuple(filter(None, (examine_readable(folder)[0] for folder in model_folders(project.repository))))
    # A server waits a second for each completion.
    completion = () if any(model.may_complete for model in models) else ("--disable-auto-complete-config",)
    own = said.only("server", "image", "triton", *OF_EVERY_SERVER).saying(
        runtime="process" if is_installed else "auto",
        server_arg=("--log-verbose=0", *(GRPC_ARGUMENTS if is_installed else ()), *completion, *said.server_arg),
    )
    spec = ServerSpec(
        own,
        backends=backends_folder(project),
        variables={"PYTHONUNBUFFERED": "1"},  # what a model prints belongs to the request that it has
        mounts=(real_path(project.repository), cache_folder("environments")),
    )
    try:
        return choose_runtime(spec, project.repository, models)
    except ServerError:
        if is_installed:
            raise
        return None  # there is no daemon either, or it has no image


def where(runtime: Runtime | None) -> str:
    if runtime is None:
        return LOCALLY
    release = f"Triton {runtime.release}" if runtime.release else "a Triton server"
    return f"on {release}, {f'a container of {runtime.image}' if runtime.image else 'a process of this machine'}"


def open_models(
    project: Project,
    runtime: Runtime | None,
    *,
    timeout: float,
    progress: Progress = SILENT,
    store: SharedStore | None = None,
) -> Models:
    """The models of a repository, on a server or, without a runtime, locally; limits in seconds."""
    if runtime is None:
        log: list[LogLine] = []
        return LocalModels(local_server(project, log=log.append, timeout=timeout), log)
    from envpack.testing.served_models import ServedModels

    return ServedModels(runtime, project, timeout=timeout, progress=progress, store=store)


__tracebackhide__ = True  # pytest shows the line of the test instead
_DECOUPLED = "the model is decoupled, so its responses come by stream(), on a server too"


class LocalModels:
    """Implements `envpack.testing.model.Models` by a process for each model, with the output of this one."""

    def __init__(self, server: LocalServer, log: Sequence[LogLine]) -> None:
        self._server, self._log = server, log

    def load(self, model: str) -> None:
        try:
            self._server.model(model)
        except ModelFailed as error:
            raise ModelError(error.text, fix_of(error.text)) from None

    def forget(self, model: str) -> None:
        self._server.forget(model)

    def config(self, model: str) -> dict[str, Any]:
        loaded = self._server.started(model) or self._server.model(model)
        document: dict[str, Any] = json.loads(config_json(loaded.config))
        return document

    def infer(self, requests: Sequence[Request]) -> list[tuple[Response, ...]]:
        try:
            model = self._server.model(requests[0].model)
            if model.decoupled:
                raise ModelFailed(_DECOUPLED)
            return list(map(tuple, model.infer_batch(requests)))
        except ModelFailed as error:
            return [(Response(error=error.text, code=error.code),)] * len(requests)

    def stream(self, request: Request) -> Iterator[Response]:
        try:
            for response, _ in self._server.stream(request):
                if response is not NOTHING:
                    yield response
        except ModelFailed as error:
            yield Response(error=error.text, code=error.code)

    def has_ended(self, model: str) -> bool:
        started = self._server.started(model)
        return started is not None and started.process.has_ended

    def position(self) -> int:
        return len(self._log)

    def logged(self, model: str, since: int) -> list[str]:
        # What a stub or envpack reports names no file; a server that is not verbose writes no verbose lines.
        lines = (line for line in self._log[since:] if line.model == model and line.level != "verbose")
        return [line.text for line in lines if line.place.partition(":")[0]]

    def printed(self, since: int) -> str:  # noqa: ARG002 - the interface's
        return ""

    def close(self) -> None:
        self._server.stop()

    def kill(self) -> None:
        self._server.kill()
