"""One loaded model: its process, its configuration, and the requests that it has not answered."""

from __future__ import annotations

import dataclasses
import itertools
import queue
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from envpack.local.admission import admit, deliver
from envpack.local.connection import Kind
from envpack.local.model_config import complete_config, config_json, instance_arguments, merge_completion
from envpack.local.model_process import Afterwards, Host, ModelFailed, ModelProcess, Python
from envpack.local.sequences import Sequences
from envpack.local.values import Reader, Request, Response, Writer
from envpack.repository import ModelConfig

_FINAL = 1  # flag of the last response to a request
_RESCHEDULED = 2


@dataclasses.dataclass
class _Open:
    """A request whose final response has not come."""

    request: Request
    responses: queue.SimpleQueue[tuple[Response, bool]] = dataclasses.field(default_factory=queue.SimpleQueue)
    is_cancelled: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelSource:
    """What to load.

    Attributes:
        name: of the model.
        folder: its folder.
        version: its version.
        config: the content of its config.pbtxt.
        python: what it runs on.
        variables: variables that it gets beside those of all models.

    """

    name: str
    folder: Path
    version: str
    config: ModelConfig
    python: Python
    variables: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def file(self) -> Path:
        """The file that holds its class."""
        return self.folder / self.version / (self.config.default_model_filename or "model.py")


class LocalModel:
    """A model that answers requests, without a server.

    Args:
        source: what to load.
        host: answers its queries, beside those about its own requests.
        release: number of the Triton release whose features it sees, for example 2410.
        variables: variables that it gets beside those of this process.
        output: where its standard output and error go; None for those of this process.

    Raises:
        ModelFailed: the model cannot be loaded.
        ServerError: the stub cannot be started (kind ``stub-failed``).

    """

    def __init__(
        self,
        source: ModelSource,
        host: Host,
        *,
        release: int,
        variables: Mapping[str, str] | None = None,
        output: int | IO[bytes] | None = None,
    ) -> None:
        self.version = source.version
        self._host = host
        self._numbers = itertools.count(1)
        self._open: dict[int, _Open] = {}
        self._turn = threading.Lock()  # a model processes one batch at a time
        completed = complete_config(source.config, source.name)
        self.process = ModelProcess(
            source.python,
            source.file,
            source.name,
            release=release,
            host=self,
            variables={**(variables or {}), **source.variables},
            output=output,
        )
        try:
            self.config = self._initialize(completed, source)
        except BaseException:
            self.process.close()
            raise
        self._sequences = Sequences(self.config) if self.config.HasField("sequence_batching") else None

    @property
    def decoupled(self) -> bool:
        """Whether a request can have any number of responses."""
        return bool(self.config.model_transaction_policy.decoupled)

    def serves(self, version: int) -> bool:
        """Whether requests may name this version; -1 stands for any."""
        return version in (-1, int(self.version))

    def _initialize(self, completed: Any, source: ModelSource) -> Any:
        config, text = merge_completion(completed, self.process.complete(config_json(completed)))
        arguments = instance_arguments(config, text, str(source.folder), source.version)
        self.process.initialize(
            arguments,
            decoupled=config.model_transaction_policy.decoupled,
            instance=arguments["model_instance_name"],
        )
        return config

    def stream(self, request: Request) -> Iterator[tuple[Response, bool]]:
        """Run a request; yields its responses as they come, and whether each is the last one. Any thread.

        The last response of a decoupled model can be empty. Closing the iterator before it cancels the request.

        Raises:
            ModelFailed: a server rejects the request.

        """
        return self._responses(self._admitted(request))

    def infer_batch(self, requests: list[Request]) -> list[list[Response]]:
        """Run requests in one call of ``execute()``; returns the responses to each.

        Raises:
            ModelFailed: a server rejects one of the requests.

        """
        opened = [self._admitted(request) for request in requests]
        self._execute(opened)
        return [[response for response, _ in self._drain(number, open_)] for number, open_ in opened]

    def stop(self) -> None:
        """Finalize the model, and end its process."""
        with self._turn:
            self.process.stop()

    def log(self, line: Any) -> None:
        """Take a line of the model's log."""
        self._host.log(line)

    def answer(self, process: ModelProcess, kind: Kind, content: Reader, answer: Writer) -> Afterwards:
        """Answer a query of the process; those about its own requests here, the others by the host."""
        if kind is Kind.SEND:
            self._take_response(content)
        elif kind is Kind.IS_CANCELLED:
            open_ = self._open.get(content.number())
            answer.number(open_ is None or open_.is_cancelled)
        elif kind is not Kind.DELETE_FACTORY:
            return self._host.answer(process, kind, content, answer)
        return None

    def _admitted(self, request: Request) -> tuple[int, _Open]:
        admitted = admit(request, self.config)
        if self._sequences is not None:
            admitted = self._sequences.admit(admitted)
        admitted = dataclasses.replace(admitted, model=self.config.name)
        return next(self._numbers), _Open(admitted)

    def _responses(self, opened: tuple[int, _Open]) -> Iterator[tuple[Response, bool]]:
        runner = threading.Thread(target=self._execute, args=([opened],), daemon=True)
        runner.start()
        try:
            yield from self._drain(*opened)
        finally:
            runner.join()
            self._open.pop(opened[0], None)

    def _drain(self, number: int, open_: _Open) -> Iterator[tuple[Response, bool]]:
        is_last = False
        try:
            while not is_last:
                response, is_last = open_.responses.get()
                yield self._delivered(open_.request, response), is_last
        finally:
            if is_last:
                self._open.pop(number, None)
            else:  # the model can see that until it ends the request
                open_.is_cancelled = True

    def _delivered(self, request: Request, response: Response) -> Response:
        wanted = tuple(tensor for tensor in response.outputs if tensor.name in request.outputs)
        return dataclasses.replace(response, outputs=deliver(wanted, self.config))

    def _execute(self, batch: list[tuple[int, _Open]]) -> None:
        """Run a batch, and again those of its requests that the model reschedules."""
        self._open.update(batch)
        while batch:
            try:
                with self._turn:
                    answer = self.process.execute([(number, open_.request) for number, open_ in batch])
            except ModelFailed as error:
                self._fail(batch, error.text)
                return
            failure = answer.failure()
            if failure is not None:
                self._fail(batch, failure)
                return
            batch = [opened for opened in batch if self._take_answer(opened[1], answer)]

    def _fail(self, batch: list[tuple[int, _Open]], text: str) -> None:
        for _, open_ in batch:
            open_.responses.put((Response(error=text), True))

    def _take_answer(self, open_: _Open, answer: Reader) -> bool:
        """Read what a batch says of one of its requests; whether to run it again."""
        flags, has_response = answer.number(), answer.flag()
        if has_response:
            open_.responses.put((answer.response(), True))
        return bool(flags & _RESCHEDULED) and not has_response

    def _take_response(self, content: Reader) -> None:
        number, flags, has_response = content.number(), content.number(), content.flag()
        open_ = self._open.get(number)
        if open_ is None:
            return
        is_last = bool(flags & _FINAL)
        if has_response or is_last:
            open_.responses.put((content.response() if has_response else Response(), is_last))
        if is_last and open_.is_cancelled:
            self._open.pop(number, None)
