"""Models for tests without a server."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Sequence
from typing import Any

from envpack.local import NOTHING, LocalModel, LogLine, ModelFailed, Request, Response, config_json, local_server
from envpack.settings import Project
from envpack.testing.models import DECOUPLED, ModelError, Outputs

__tracebackhide__ = True  # pytest shows the line of the test instead


class LocalModels:
    """Implements `envpack.testing.models.Models` by one process for each model.

    What models print goes to the output of this process, where pytest captures it.
    """

    def __init__(self, project: Project, timeout: float) -> None:
        self._log: list[LogLine] = []
        self._server = local_server(project, log=self._log.append, timeout=timeout)

    def load(self, model: str) -> None:
        try:
            self._server.model(model)
        except ModelFailed as error:
            raise ModelError(error.text) from None

    def forget(self, model: str) -> None:
        self._server.forget(model)

    def config(self, model: str) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(config_json(self._server.own_model(model).config))
        return document

    def infer(self, request: Request) -> Outputs:
        self.load(request.model)
        if self._server.model(request.model).decoupled:
            raise ModelError(DECOUPLED)
        try:
            return _outputs(self._server.infer(_as_received(request)))
        except ModelFailed as error:
            raise ModelError(error.text) from None

    def infer_batch(self, requests: Sequence[Request]) -> list[Outputs | ModelError]:
        model = self._server.model(requests[0].model)
        if model.decoupled:
            raise ModelError(DECOUPLED)
        if not isinstance(model, LocalModel):  # an ensemble: its models get one request at a time
            return [self._answer(request) for request in requests]
        try:
            answers = model.infer_batch([_as_received(request) for request in requests])
        except ModelFailed as error:
            raise ModelError(error.text) from None
        return [_single(responses) for responses in answers]

    def stream(self, request: Request) -> Iterator[Outputs]:
        self.load(request.model)
        try:
            for response, _ in self._server.stream(_as_received(request)):
                if response is not NOTHING:
                    yield _outputs(response)
        except ModelFailed as error:
            raise ModelError(error.text) from None

    def position(self) -> int:
        return len(self._log)

    def logged(self, model: str, since: int) -> list[str]:
        return [line.text for line in self._log[since:] if line.model == model]

    def close(self) -> None:
        self._server.stop()

    def _answer(self, request: Request) -> Outputs | ModelError:
        try:
            return self.infer(request)
        except ModelError as error:
            return error


def _as_received(request: Request) -> Request:
    """A request as a model gets it: a server keeps some parameters for itself."""
    parameters = json.loads(request.parameters)
    if not {"timeout", "priority"} & set(parameters):
        return request
    timeout = parameters.pop("timeout", 0)
    parameters.pop("priority", None)
    text = json.dumps(parameters, separators=(",", ":"), ensure_ascii=False)
    return dataclasses.replace(request, timeout=timeout, parameters=text)


def _outputs(response: Response) -> Outputs:
    if response.error is not None:
        raise ModelError(response.error)
    return response.outputs


def _single(responses: Sequence[Response]) -> Outputs | ModelError:
    if len(responses) != 1:
        return ModelError(f"expected a single response, got {len(responses)}")
    (response,) = responses
    return response.outputs if response.error is None else ModelError(response.error)
