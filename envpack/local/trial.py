"""One run of a model: it is loaded, answers requests, and is judged as `envpack verify` judges it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from envpack.local.inputs import read_requests
from envpack.local.local_model import LocalModel
from envpack.local.model_config import config_json
from envpack.local.model_process import ModelFailed
from envpack.local.server import LocalServer
from envpack.local.values import NOTHING, Request, Response, readable
from envpack.server import ServedConfig, Tensor, read_served_config
from envpack.support.progress import NoProgress, Progress
from envpack.verification import TOGETHER, SampleCount, Samples, configuration_mismatch, responses_difference


@dataclass
class Answer:
    """What a model answered to one request.

    Attributes:
        request: the request.
        responses: the responses; more or fewer than one only from a decoupled model.
        seconds: how long each run of it took.
        fault: why `envpack verify` would refuse it, ``""`` if it would not.
        difference: how it differs from the expected answer, ``""`` if it does not.
    """

    request: Request
    responses: tuple[Response, ...] = ()
    seconds: list[float] = field(default_factory=list)
    fault: str = ""
    difference: str = ""


@dataclass(frozen=True)
class Trial:
    """One run of a model.

    Attributes:
        model: its name.
        config: the configuration that it ran with.
        load_seconds: how long it took to start, import and initialize it.
        answers: one for each request.
        samples: how many of them are those that the samples expect; None if nothing is expected.
        peak_memory: the most physical memory that its process has had, in bytes; 0 for an ensemble.
    """

    model: str
    config: ServedConfig
    load_seconds: float
    answers: tuple[Answer, ...]
    samples: SampleCount | None = None
    peak_memory: int = 0

    @property
    def ok(self) -> bool:
        """Whether `envpack verify` would accept all answers."""
        return not any(answer.fault for answer in self.answers) and (self.samples is None or self.samples.ok)


def try_model(
    server: LocalServer,
    name: str,
    folder: Path,
    sources: Sequence[str] = (),
    *,
    repeat: int = 1,
    progress: Progress | None = None,
) -> Trial:
    """Load a model, and send it requests."""
    progress = progress or NoProgress()
    server.prepare(name)
    progress.begin(f"{name}: load")
    started = time.perf_counter()
    model = server.own_model(name)
    load_seconds = model.load_seconds if isinstance(model, LocalModel) else time.perf_counter() - started
    progress.end(f"ready in {load_seconds:.2f} s")
    config = read_served_config(json.loads(config_json(model.config)))
    given = read_requests(sources, config, name, folder)
    answers = tuple(map(Answer, given.requests))
    for _ in range(repeat):
        taken = [answer for answer in answers if _send(server, config, answer)]
        if given.samples is not None:
            _compare(answers, given.samples)
    if config.merges and config.batched and not config.decoupled and isinstance(model, LocalModel):
        _send_together(server, model, config, taken)
    count = None
    if given.samples is not None and given.samples.have_answers:
        count = given.samples.count(sum(not (answer.fault or answer.difference) for answer in answers))
    peak = model.process.peak_memory() if isinstance(model, LocalModel) else 0
    return Trial(name, config, load_seconds, answers, count, peak)


def _send(server: LocalServer, config: ServedConfig, answer: Answer) -> bool:
    """Send a request; returns whether the model has got it: a server rejects what does not fit the configuration."""
    found: list[Response] = []
    is_taken = True
    started = time.perf_counter()
    try:
        found.extend(response for response, _ in server.stream(answer.request) if response is not NOTHING)
    except ModelFailed as error:
        found.append(Response(error=error.text))
        is_taken = False
    answer.seconds.append(time.perf_counter() - started)
    answer.responses = tuple(found)
    answer.fault = answer.fault or _fault(found, config)
    return is_taken


def _send_together(server: LocalServer, model: LocalModel, config: ServedConfig, answers: Sequence[Answer]) -> None:
    """Send requests in batches, as a server merges them; each has to get the answer that it gets alone."""
    for batch in _batches(answers, config.largest_batch):
        try:
            found = model.infer_batch([answer.request for answer in batch])
        except ModelFailed as error:
            found = [[Response(error=error.text)]] * len(batch)
        for answer, responses in zip(batch, found, strict=True):
            fault = _fault(responses, config)
            if not fault and not answer.fault:
                fault = responses_difference(_read(answer.responses), _read(responses), lambda _: TOGETHER)
                fault = fault if fault and _is_repeatable(server, answer) else ""
            answer.fault = answer.fault or (f"in a batch of {len(batch)} requests: {fault}" if fault else "")


def _batches(answers: Sequence[Answer], largest: int) -> Iterator[list[Answer]]:
    """Requests that a server merges: of equal shapes, with no more items than a batch may have.

    A request that nothing can be merged with is merged with itself.
    """
    alike: dict[object, list[Answer]] = {}
    for answer in answers:
        shapes = frozenset((tensor.name, tensor.shape[1:]) for tensor in answer.request.inputs)
        alike.setdefault(shapes, []).append(answer)
    for group in alike.values():
        batch: list[Answer] = []
        for answer in group if len(group) > 1 else group * 2:
            if batch and sum(map(_items, (*batch, answer))) > largest:
                yield batch
                batch = []
            batch.append(answer)
        yield batch


def _items(answer: Answer) -> int:
    """Number of items in the batch that a request is."""
    return next((tensor.shape[0] for tensor in answer.request.inputs if tensor.shape), 1)


def _is_repeatable(server: LocalServer, answer: Answer) -> bool:
    """Whether a request gets the same answer again when it is alone."""
    again = [response for response, _ in server.stream(answer.request) if response is not NOTHING]
    return not responses_difference(_read(answer.responses), _read(again), lambda _: TOGETHER)


def _read(responses: Sequence[Response]) -> tuple[tuple[Tensor, ...], ...]:
    return tuple(tuple(map(readable, response.outputs)) for response in responses)


def _compare(answers: Sequence[Answer], samples: Samples) -> None:
    """Compare answers with those that samples expect."""
    for answer, sample in zip(answers, samples.samples, strict=True):
        if not answer.fault:
            answer.difference = answer.difference or sample.difference(_read(answer.responses), samples)


def _fault(responses: Sequence[Response], config: ServedConfig) -> str:
    error = next((response.error for response in responses if response.error is not None), None)
    if error is not None:
        return error
    if not config.decoupled and len(responses) != 1:
        return f"expected a single response, got {len(responses)}"
    for response in responses:
        mismatch = configuration_mismatch(config, tuple(map(readable, response.outputs)))
        if mismatch:
            return mismatch
    return ""
