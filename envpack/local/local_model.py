"""One loaded model: its process, its configuration, and the requests that it has not answered."""

from __future__ import annotations

import dataclasses
import itertools
import math
import queue
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from functools import partial
from typing import IO, Any

from envpack.local.admission import admit, batches, completed, deliver, received, warmups
from envpack.local.connection import MORE_TIME, Kind, Limit, next_of
from envpack.local.model_config import (
    complete_config,
    completion_fault,
    config_json,
    instance_arguments,
    merge_completion,
)
from envpack.local.model_process import Afterwards, Answering, LogLine, ModelFailed, ModelProcess
from envpack.local.starting import ModelSource
from envpack.local.values import INVALID, NOTHING, Reader, Request, Response, Writer
from envpack.repository.config_rules import config_faults, warmup_faults
from envpack.support.text import counted

_FINAL = 1  # flag of the last response to a request
_RESCHEDULED = 2
_MOST_RESPONSES = 100_000  # to one request
NEEDS_SERVER = "only a server does that: see `envpack test` and `envpack dev`"
_SEND_FINAL = "send the last response, or nothing, with flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL"


@dataclasses.dataclass
class _Open:
    number: int
    request: Request
    until: float  # when the final response must have come, by the clock of the limit
    step: str = "it waited for an earlier request"  # what has become of the request, in words
    count: int = 0  # number of responses that have come
    has_final: bool = False  # whether the final one is among them
    # Those that nothing has taken yet, and whether each is the final one.
    responses: queue.SimpleQueue[tuple[Response, bool]] = dataclasses.field(default_factory=queue.SimpleQueue)
    is_cancelled: bool = False  # whether the model sees it as cancelled

    def put(self, response: Response, *, is_last: bool) -> None:
        """Take a response; any thread."""
        self.count += response is not NOTHING
        self.has_final = self.has_final or is_last
        self.responses.put((response, is_last))


class Responses(Iterator[tuple[Response, bool]]):
    """The responses to one request as they come, and whether each is the last one."""

    def __init__(self, open_: _Open, responses: Generator[tuple[Response, bool]]) -> None:
        self._open, self._responses = open_, responses

    def __next__(self) -> tuple[Response, bool]:
        return next(self._responses)

    def cancel(self) -> None:
        """Cancel the request, which the model can see; its responses go on. Any thread."""
        self._open.is_cancelled = True

    def close(self) -> None:
        """Cancel the request, and wait for the model."""
        self._responses.close()


@dataclasses.dataclass
class _Batch:
    requests: list[_Open]
    done: threading.Event = dataclasses.field(default_factory=threading.Event)


class LocalModel:
    """A model that answers requests, without a server. Its process starts at once; `load` makes it ready."""

    # Complete once the model is loaded.
    config: Any
    load_seconds = 0.0

    def __init__(
        self,
        source: ModelSource,
        *,
        log: Callable[[LogLine], None],
        answer: Answering,
        release: int,
        limit: Limit,
        output: int | IO[bytes] | None = None,
    ) -> None:
        self._started = time.perf_counter()
        self.version = source.version
        self._source = source
        self.log, self._answer = log, answer
        self._limit = limit
        self._numbers = itertools.count(1)
        self._open: dict[int, _Open] = {}
        self._batches: queue.SimpleQueue[_Batch | None] = queue.SimpleQueue()
        self._queueing = threading.Lock()  # of what follows
        self._is_closed = False
        self.process = ModelProcess(source, release=release, host=self, limit=limit, output=output)
        # A model processes one batch at a time. One thread does that for the life of the model: Ctrl-C can interrupt
        # the start of a thread, and then it is unknown whether it runs.
        self._worker = threading.Thread(target=self._run_batches, name=f"{source.name}-batches", daemon=True)
        self._worker.start()

    @property
    def decoupled(self) -> bool:
        return bool(self.config.model_transaction_policy.decoupled)

    def serves(self, version: int) -> bool:
        """Whether requests may name this version; -1 stands for any."""
        return version in (-1, int(self.version))

    def load(self) -> None:
        source = self._source
        completed = complete_config(source.config, source.name)
        answer = self.process.complete(config_json(completed))
        if fault := completion_fault(answer):
            raise ModelFailed(fault)
        self.config, text = merge_completion(completed, answer)
        if self.config.HasField("sequence_batching"):
            raise ModelFailed(f"the model completed its configuration with sequence_batching; {NEEDS_SERVER}")
        for fault in (
            *config_faults(self.config, source.folder, is_complete=True),
            *warmup_faults(self.config, source.folder, is_complete=True),
        ):
            raise ModelFailed(fault)
        arguments = instance_arguments(self.config, text, str(source.folder), source.version)
        self.process.initialize(arguments, decoupled=self.decoupled)
        for name, requests in warmups(self.config, source.folder):
            self._warm_up(name, requests)
        self.load_seconds = time.perf_counter() - self._started

    def stream(self, request: Request) -> Responses:
        """Run a request; yields its responses as they come, and whether each is the last one. Any thread.

        The last one can be `NOTHING`. Closing the iterator before it cancels the request. If the model takes too long,
        its process is ended, and the last response is an error that names what is missing.
        """
        open_ = self._opened(self._admitted(request))
        return Responses(open_, self._responses(open_))

    def infer_batch(self, requests: Sequence[Request]) -> list[list[Response]]:
        """The responses, without `NOTHING`, to a client's requests, in batches as the configuration makes them."""
        admitted = [self._admitted_or_refused(request) for request in requests]
        opened = [self._opened(request) for request in admitted if isinstance(request, Request)]
        waiting = batches([(open_.request, open_) for open_ in opened], self.config)
        answers = iter(self._run_together(opened, waiting))
        return [[request] if isinstance(request, Response) else next(answers) for request in admitted]

    def cancel(self) -> None:
        for open_ in list(self._open.values()):
            open_.is_cancelled = True

    def stop(self) -> None:
        self._close_queue()
        if not self._limit.wait(self._limit.end(), self._has_ended):
            self.process.end(f"{self._limit} passed while it had requests to answer; {MORE_TIME}")
        self._worker.join()  # no limit: what it waited for has answered or ended
        self.process.stop()

    def kill(self) -> None:
        self._close_queue()
        self.process.close()

    def ended(self, text: str) -> None:
        """Fail the requests that the process has not answered."""
        for open_ in list(self._open.values()):
            open_.put(Response(error=text), is_last=True)

    def answer(self, process: ModelProcess, kind: Kind, content: Reader, answer: Writer) -> Afterwards:
        """Answer a query of the process; those about its own requests here, the others by the host."""
        if kind is Kind.SEND:
            self._take_response(content)
        elif kind is Kind.IS_CANCELLED:
            open_ = self._open.get(content.number())
            answer.number(open_ is None or open_.is_cancelled)
        elif kind is not Kind.DELETE_FACTORY:
            return self._answer(process, kind, content, answer)
        return None

    def _warm_up(self, name: str, requests: Sequence[Request]) -> None:
        """Run a warm-up, in one call of `execute()`; a server does not load a model that fails it."""
        model, config = self.config.name, self.config
        opened = [self._opened(dataclasses.replace(completed(each, config), model=model)) for each in requests]
        for response in itertools.chain.from_iterable(self._run_together(opened, [opened])):
            if response.error is not None:
                raise ModelFailed(f"failed to run warmup sample '{name}': {response.error}")

    def _run_together(self, opened: Sequence[_Open], waiting: Iterable[list[_Open]]) -> list[list[Response]]:
        """The responses to requests that wait in batches, without `NOTHING`."""
        try:
            for batch in waiting:
                self._put(_Batch(batch))
            answers = [[response for response, _ in self._drain(open_)] for open_ in opened]
        finally:
            for open_ in opened:
                self._close(open_)
        return [[each for each in found if each is not NOTHING] for found in answers]

    def _admitted(self, request: Request) -> Request:
        return dataclasses.replace(admit(request, self.config), model=self.config.name)

    def _admitted_or_refused(self, request: Request) -> Request | Response:
        try:
            return self._admitted(received(request))
        except ModelFailed as error:
            return Response(error=error.text, code=error.code)

    def _put(self, batch: _Batch) -> None:
        with self._queueing:
            if self._is_closed:
                raise ModelFailed(f"model '{self.config.name}' is being unloaded")
            self._batches.put(batch)

    def _close_queue(self) -> None:
        with self._queueing:
            self._is_closed = True
            self._batches.put(None)

    def _opened(self, request: Request) -> _Open:
        open_ = _Open(next(self._numbers), request, self._limit.end())
        self._open[open_.number] = open_
        return open_

    def _responses(self, open_: _Open) -> Generator[tuple[Response, bool]]:
        batch = _Batch([open_])
        try:
            self._put(batch)
            yield from self._drain(open_)
            if text := self._await(batch, open_, open_.until):
                raise ModelFailed(text)
        except GeneratorExit:
            open_.is_cancelled = True
            self._await(batch, open_, self._limit.end())
            raise
        finally:
            self._close(open_)

    def _drain(self, open_: _Open) -> Iterator[tuple[Response, bool]]:
        is_last = False
        while not is_last:
            is_late = not open_.has_final and (self._limit.now() > open_.until or open_.count > _MOST_RESPONSES)
            found = () if is_late else self._limit.wait(open_.until, partial(next_of, open_.responses))
            if not found:
                open_.put(Response(error=self.process.end(self._missing(open_))), is_last=True)
                open_.until = math.inf
                continue
            response, is_last = found[0]
            yield self._delivered(open_.request, response), is_last

    def _await(self, batch: _Batch, open_: _Open, until: float) -> str:
        """Wait until a batch has been executed; returns why its process was ended if it was not in time."""
        if self._limit.wait(until, batch.done.wait):
            return ""
        text = self.process.end(self._missing(open_))
        batch.done.wait()  # no limit: its process has ended
        return text

    def _has_ended(self, seconds: float) -> bool:
        """Whether all batches have been executed within so many seconds, and none will be any more."""
        self._worker.join(seconds)
        return not self._worker.is_alive()

    def _missing(self, open_: _Open) -> str:
        came = f"{counted(open_.count, 'response')} came"
        if self.decoupled and not open_.has_final:
            came += f" without the final flag: {_SEND_FINAL}"
        if open_.count > _MOST_RESPONSES:
            return came
        asked, fix = "", MORE_TIME
        if self.process.asked:
            asked = f", and its request to model '{self.process.asked[-1]}' had no final response"
        if self.config.name in self.process.asked:
            fix = f"a model that waits for itself needs another instance, and here it has one; {NEEDS_SERVER}"
        return f"{self._limit} passed, and {open_.step}{asked}; {came}; {fix}"

    def _close(self, open_: _Open) -> None:
        """Forget a request, which the model sees as cancelled from now on."""
        open_.is_cancelled = True
        self._open.pop(open_.number, None)

    def _delivered(self, request: Request, response: Response) -> Response:
        if response is NOTHING:
            return response
        if response.outputs and not request.outputs:  # the stub leaves out what is not requested, unless nothing is
            name = response.outputs[0].name
            return Response(error=f"unexpected inference output '{name}' for model '{self.config.name}'", code=INVALID)
        wanted = tuple(tensor for tensor in response.outputs if tensor.name in request.outputs)
        try:
            return dataclasses.replace(response, outputs=deliver(wanted, self.config))
        except ModelFailed as error:
            return Response(error=error.text)

    def _run_batches(self) -> None:
        while (batch := self._batches.get()) is not None:  # no limit: _close_queue() ends it
            try:
                self._execute(batch.requests)
            except Exception as error:  # this thread owes an answer to each request, and to those that come after
                text = error.text if isinstance(error, ModelFailed) else f"{type(error).__name__}: {error}"
                for open_ in batch.requests:
                    open_.put(Response(error=text), is_last=True)
            finally:
                batch.done.set()

    def _execute(self, requests: list[_Open]) -> None:
        for open_ in requests:
            open_.step = "execute() was running"
        answers = self.process.execute([(open_.number, open_.request) for open_ in requests])
        for open_, (flags, response) in zip(requests, answers, strict=True):
            open_.step = "execute() had returned"
            if response is not None:
                open_.put(response, is_last=True)
            elif flags & _RESCHEDULED:
                text = f"the model rescheduled the request, which needs iterative sequence_batching; {NEEDS_SERVER}"
                open_.put(Response(error=text), is_last=True)

    def _take_response(self, content: Reader) -> None:
        number, flags, has_response = content.number(), content.number(), content.flag()
        open_ = self._open.get(number)
        if open_ is None:
            return
        is_last = bool(flags & _FINAL)
        if has_response or is_last:
            open_.put(content.response() if has_response else NOTHING, is_last=is_last)
