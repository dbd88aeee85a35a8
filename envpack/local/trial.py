"""One run of a model: it is loaded, answers requests, and is judged as `envpack verify` judges it."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from envpack.local.inputs import read_requests
from envpack.local.local_model import LocalModel
from envpack.local.local_server import LocalServer
from envpack.local.model_config import config_json
from envpack.local.model_process import ModelFailed
from envpack.local.values import NOTHING, Request, Response, readable
from envpack.server import ServedConfig, read_served_config
from envpack.support.progress import NoProgress, Progress
from envpack.verification import SampleCount, Samples, configuration_mismatch


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
    """Load a model, and send it requests.

    Args:
        server: runs it.
        name: of the model.
        folder: its folder, which may hold samples.
        sources: what to send, see `read_requests`.
        repeat: how often to send each request.
        progress: receives each step.

    Raises:
        ModelFailed: the model cannot be loaded.
        InputError: what is to be sent cannot be read or does not fit the model.
        EnvpackError: its environment or stub cannot be made.

    """
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
        for answer in answers:
            _send(server, config, answer)
        if given.samples is not None:
            _compare(answers, given.samples)
    count = None
    if given.samples is not None and given.samples.have_answers:
        count = given.samples.count(sum(not (answer.fault or answer.difference) for answer in answers))
    peak = model.process.peak_memory() if isinstance(model, LocalModel) else 0
    return Trial(name, config, load_seconds, answers, count, peak)


def _send(server: LocalServer, config: ServedConfig, answer: Answer) -> None:
    found: list[Response] = []
    started = time.perf_counter()
    try:
        found.extend(response for response, _ in server.stream(answer.request) if response is not NOTHING)
    except ModelFailed as error:
        found.append(Response(error=error.text))
    answer.seconds.append(time.perf_counter() - started)
    answer.responses = tuple(found)
    answer.fault = answer.fault or _fault(found, config)


def _compare(answers: Sequence[Answer], samples: Samples) -> None:
    """Compare answers with those that samples expect."""
    for answer, sample in zip(answers, samples.samples, strict=True):
        found = tuple(tuple(map(readable, response.outputs)) for response in answer.responses)
        if not answer.fault:
            answer.difference = answer.difference or sample.difference(found, samples)


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
