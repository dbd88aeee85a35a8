"""Models for tests on a real server."""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from envpack.local import MORE_TIME, SEQUENCE_END, SEQUENCE_START, RawTensor, Request, readable
from envpack.repository import backends_folder, called_models, needed_first, open_model, version_folders
from envpack.server import (
    STUB_REPORT,
    Client,
    InferMessage,
    ProcessRuntime,
    RequestError,
    Tensor,
    encode,
    find_server,
    infer_together,
    read_model_error,
)
from envpack.settings import Project
from envpack.testing.grpc_streams import GRPC_ARGUMENTS, stream_by_grpc
from envpack.testing.models import ModelError, Outputs
from envpack.verification import abort_and_read_frames

__tracebackhide__ = True  # pytest shows the line of the test instead
_QUIET_SECONDS = 0.1  # the server writes what a model logs after the model has answered
_LINE = re.compile(r"^[IWEF]\d{4} [\d:.]+ \d+ (?P<file>[^:\s]+):\d+\] (?P<text>.*)$", re.MULTILINE)


class ServedModels:
    """Implements `envpack.testing.models.Models` by a server, which is started when it is first used."""

    def __init__(self, project: Project, program: Path | None, timeout: float) -> None:
        self._repository = project.repository
        self._timeout = timeout
        self._loaded: set[str] = set()
        self._ended: dict[
            str, ModelError
        ] = {}  # models whose processes were ended, which the server does not start anew
        self._configs: dict[str, dict[str, Any]] = {}
        self._stack = contextlib.ExitStack()
        runtime = ProcessRuntime(
            find_server(program), extra_backends=backends_folder(project), arguments=GRPC_ARGUMENTS
        )
        self._server = self._stack.enter_context(runtime.start(self._repository))
        self._client = Client(self._server.url, timeout=timeout)

    def load(self, model: str) -> None:
        if model in self._ended:
            raise self._ended[model]
        if model in self._loaded:
            return
        # A server loads no model because another one sends requests to it.
        *called, _ = needed_first([model], lambda name: called_models(self._repository / name))
        for needed in called:
            with contextlib.suppress(ModelError):  # an error only for a test that uses it
                self._load(needed)
        self._load(model)

    def forget(self, model: str) -> None:
        self._loaded.discard(model)
        self._ended.pop(model, None)
        self._configs.pop(model, None)

    def config(self, model: str) -> dict[str, Any]:
        if model not in self._configs:
            self._configs[model] = dict(self._client.config(model))
        return self._configs[model]

    def infer(self, request: Request) -> Outputs:
        (answer,) = self.infer_batch([request])
        if isinstance(answer, ModelError):
            raise answer
        return answer

    def infer_batch(self, requests: Sequence[Request]) -> list[Outputs | ModelError]:
        for request in requests:
            self.load(request.model)
        answers = infer_together(self._client, list(map(self._message, requests)), timeout=self._timeout)
        errors = {answer.message: answer for answer in answers if isinstance(answer, RequestError)}
        failures = {text: self._failure(requests[0].model, error, text) for text, error in errors.items()}
        return [failures[answer.message] if isinstance(answer, RequestError) else _raw(answer) for answer in answers]

    def stream(self, request: Request) -> Iterator[Outputs]:
        self.load(request.model)
        (port,) = self._server.other_ports()
        try:
            yield from stream_by_grpc(port, request, _parameters(request), self._timeout)
        except RequestError as error:
            raise self._failure(request.model, error, error.message) from None

    def position(self) -> int:
        return self._server.log_size()

    def logged(self, model: str, since: int) -> list[str]:
        # A line of the log names the file that logs, not the model; what a stub says of itself is not the model's.
        versions = version_folders(self._repository / model)
        names = {source.name for version in versions for source in version.rglob("*.py")}
        lines = (_text(line["text"]) for line in _LINE.finditer(self._quiet_log(since)) if line["file"] in names)
        return [line for line in lines if not line.startswith(STUB_REPORT)]

    def close(self) -> None:
        if self._ended:
            self._server.stop(force=True)  # it would wait for them
        self._stack.close()

    def _message(self, request: Request) -> InferMessage:
        inputs = tuple(map(readable, request.inputs))
        return self._client.infer_message(
            request.model,
            inputs,
            binary=True,
            parameters=_parameters(request),
            request_id=request.id,
            outputs=sorted(request.outputs),
        )

    def _load(self, model: str) -> None:
        if model in self._loaded:
            return
        try:
            self._client.load(model, timeout=self._timeout)
        except RequestError as error:
            text = read_model_error(error.message, str(self._repository / model)).text
            raise self._failure(model, error, text) from None
        self._loaded.add(model)

    def _failure(self, model: str, error: RequestError, text: str) -> ModelError:
        """What a test gets. A model that takes too long is ended, so that other tests do not wait for it."""
        if not error.timed_out:
            return ModelError(text)
        frames = abort_and_read_frames(self._server, open_model(self._repository / model))
        running = f"; {frames[0]} was running" if frames else ""
        self._ended[model] = ModelError(f"{text}{running}; {MORE_TIME}")
        return self._ended[model]

    def _quiet_log(self, since: int) -> str:
        """The log, once nothing has been added to it for a moment."""
        size = -1
        while size != self._server.log_size():
            size = self._server.log_size()
            time.sleep(_QUIET_SECONDS)
        return self._server.log(since)


def _parameters(request: Request) -> dict[str, object]:
    """The parameters of a request as clients send them, with those that a server keeps for itself."""
    parameters: dict[str, object] = json.loads(request.parameters)
    if request.correlation_id:
        parameters["sequence_id"] = request.correlation_id
        parameters["sequence_start"] = bool(request.flags & SEQUENCE_START)
        parameters["sequence_end"] = bool(request.flags & SEQUENCE_END)
    return parameters


def _raw(outputs: Sequence[Tensor]) -> Outputs:
    return tuple(RawTensor(t.name, t.datatype, t.shape, encode(t.datatype, t.data)) for t in outputs)


def _text(logged: str) -> str:
    """The message of a log line; newer servers write it as a JSON string."""
    with contextlib.suppress(ValueError):
        if logged.startswith('"'):
            return str(json.loads(logged))
    return logged
