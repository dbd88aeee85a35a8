"""Models without a server."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from envpack.local import NOTHING, LocalServer, LogLine, ModelFailed, Request, Response, config_json, local_server
from envpack.settings import Project
from envpack.testing.model import ModelError

__tracebackhide__ = True  # pytest shows the line of the test instead
_DECOUPLED = "the model is decoupled, so its responses come by stream(), on a server too"


class LocalModels:
    """Implements `envpack.testing.model.Models` by one process for each model.

    What models print goes to the output of this process, where pytest captures it.
    """

    def __init__(self, server: LocalServer, log: Sequence[LogLine]) -> None:
        self._server, self._log = server, log

    @classmethod
    def of(cls, project: Project, timeout: float) -> LocalModels:
        """The models of a repository, with limits in seconds for each load and answer."""
        log: list[LogLine] = []
        return cls(local_server(project, log=log.append, timeout=timeout), log)

    def load(self, model: str) -> None:
        try:
            self._server.model(model)
        except ModelFailed as error:
            raise ModelError(error.text) from None

    def forget(self, model: str) -> None:
        self._server.forget(model)

    def config(self, model: str) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(config_json(self._server.model(model).config))
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

    def position(self) -> int:
        return len(self._log)

    def logged(self, model: str, since: int) -> list[str]:
        return [line.text for line in self._log[since:] if line.model == model]

    def printed(self, since: int) -> str:  # noqa: ARG002 - the interface's
        return ""

    def close(self) -> None:
        self._server.stop()

    def kill(self) -> None:
        self._server.kill()
