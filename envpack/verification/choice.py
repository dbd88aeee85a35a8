"""Chooses the requests that a loaded model is verified with: its samples, or generated ones that it accepts.

Nothing says what a model accepts beyond types and shapes. So inputs are filled in several ways, the plainest first,
until the model accepts a request.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

from envpack.repository.code import reads_request_parameters, sends_requests
from envpack.repository.model import Model
from envpack.server.interface import Server
from envpack.server.kserve import Client, RequestError
from envpack.server.log import ModelError, read_model_error
from envpack.server.tensors import ServedConfig
from envpack.verification.answers import LoadedModel, Responses, unsendable
from envpack.verification.explanations import explain_answer, may_be_refusal, reported_error
from envpack.verification.fault_catalogue import NO_TENSOR, NOT_REACHED, UNRESOLVED
from envpack.verification.requests import (
    PLAIN,
    Filling,
    SmokeRequest,
    fillings,
    generate_foreign_text,
    generate_longer,
    generate_other,
    generate_partial,
    generate_requests,
    inputs_too_large,
)
from envpack.verification.samples import SAMPLES_FILE, Samples, read_samples
from envpack.verification.verdict import Check, unchecked

NO_INPUTS = "neither config.pbtxt nor the model names an input"
DECLARE_THEM = "declare them in config.pbtxt, or in auto_complete_config with types like TYPE_FP32 (others are ignored)"
_WITHOUT_PARAMETERS = "let execute do without parameters of requests, as samples have none: parameters.get(KEY, …)"
_OF_OTHERS = "log response.error().message() of the models that it calls, where response.has_error()"
_OF_A_MODEL = 500  # status of its errors
_FILLING_SECONDS = 10.0  # for generated requests that the model refuses


@dataclass(frozen=True)
class NoRequest:
    """Why a model is sent no request."""

    check: Check
    refusal: str = ""  # the error with which it answers every generated request


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """The requests for a model."""

    requests: tuple[SmokeRequest, ...]  # at least one; the first is also the one that is timed
    samples: Samples | None = None  # the user's samples, None if the requests are generated
    filling: Filling = PLAIN  # what generated requests hold
    other: SmokeRequest | None = None  # with other inputs than the first one
    longer: SmokeRequest | None = None  # generated, with several elements in variable dimensions instead of one
    foreign: SmokeRequest | None = None  # generated, with text of other languages
    partial: tuple[SmokeRequest, ...] = ()  # generated, with one of several optional inputs
    answer: Responses = ()  # to the first request, when the model was loaded for the first time


def choose_requests(server: Server, client: Client, model: Model, config: ServedConfig) -> Chosen | NoRequest:
    file = model.folder / SAMPLES_FILE
    samples = read_samples(file, config) if os.path.lexists(file) else None
    inputs = [sample.inputs for sample in samples.samples] if samples else [()]
    if reason := next(filter(None, (unsendable(config, each) for each in inputs)), ""):
        return NoRequest(unchecked("infer", f"not sent: {reason}", "send it requests with a client of gRPC"))
    if samples:
        first = _first_sample(samples)
        others = (sample.inputs for sample in samples.samples if sample.inputs != first.inputs)
        other = next((replace(first, description="with another sample", inputs=inputs) for inputs in others), None)
        return Chosen(requests=(first,), samples=samples, other=other)
    if not config.inputs:
        return NoRequest(unchecked("infer", f"not sent: {NO_INPUTS}", DECLARE_THEM))
    if inputs_too_large(config):
        why = "not sent: config.pbtxt declares inputs too large to make up"
        return NoRequest(unchecked("infer", why, f"provide samples: {model.name}/{SAMPLES_FILE}"))
    filling, refusal = _find_filling(server, client, model, config)
    if filling is None:
        why = f"loads; needs a sample, since it refuses generated inputs: {refusal}"
        needs_more = refusal.startswith("KeyError") and reads_request_parameters(model.folder)
        fix = _WITHOUT_PARAMETERS if needs_more else record_sample(model)
        if UNRESOLVED.search(refusal):  # the input may name what is downloaded
            fix = f"{NOT_REACHED}; or {fix}"
        if NO_TENSOR in refusal:  # only of a model that sends requests to others
            fix = f"{_OF_OTHERS}; or {fix}"
        return NoRequest(unchecked("infer", why, fix), refusal)
    requests = tuple(generate_requests(config, filling))
    # Requests to decoupled models are JSON without shapes, which cannot say that there are two items.
    return Chosen(
        requests=requests[:1] if config.decoupled else requests,
        filling=filling,
        other=generate_other(config, requests[0], filling),
        longer=generate_longer(config, requests[0], filling),
        foreign=generate_foreign_text(requests[0], filling),
        partial=tuple(generate_partial(config, requests[0])),
    )


def record_sample(model: Model) -> str:
    return f"record a sample: envpack run {model.name} -i FILE --save-sample"


def _first_sample(samples: Samples) -> SmokeRequest:
    """The first sample as a complete sequence; `check_samples` sends all samples with their sequences."""
    first = samples.samples[0]
    parameters = {**first.parameters, "sequence_end": True} if first.parameters else {}
    return SmokeRequest("with the first sample", first.inputs, parameters)


def _find_filling(server: Server, client: Client, model: Model, config: ServedConfig) -> tuple[Filling | None, str]:
    """What generated inputs must hold for the model to accept them; None, and why it refuses the plain ones, which is
    no fault of it. The text of an error is a refusal, too.
    """
    attempts = Attempts(config, asks=sends_requests(model.folder))
    for filling, request in attempts:
        try:
            answer = LoadedModel(client, model.name, config).ask(request.inputs, request.parameters)
            _raise_reported(answer, request)
        except RequestError as error:
            found = read_model_error(error.message, server.server_path(model.folder))
            is_refusal = attempts.is_refusal(request, found)
            if error.timed_out or not error.status or not is_refusal or server.ended():
                raise
        else:
            return filling, ""
    return None, attempts.refusal


def _raise_reported(answer: Responses, request: SmokeRequest) -> None:
    output, said = reported_error(answer)
    if said:
        error = RequestError(said, status=_OF_A_MODEL)
        error.sent = f"{request.description}, and the text of {output} reports"
        raise error


class Attempts:
    """Generated requests with every input, the plainest first, to send until the model accepts one or time is up."""

    def __init__(self, config: ServedConfig, *, asks: bool) -> None:
        self.refusal = ""  # why the model refuses the one that got furthest, and the line of its code; empty before
        self._lines = list[int]()  # of that refusal, in the model's code, the innermost last
        self._config = config
        self._asks = asks  # whether the model asks others, whose answers can lack a tensor for what was sent
        self._first: tuple[SmokeRequest, str] | None = None

    def __iter__(self) -> Iterator[tuple[Filling, SmokeRequest]]:
        until = time.monotonic() + _FILLING_SECONDS
        for filling in fillings(self._config):
            for request in itertools.islice(generate_requests(self._config, filling), 1):
                if unsendable(self._config, request.inputs) == unsendable(self._config):
                    yield filling, request
            if time.monotonic() > until:
                return

    def is_refusal(self, request: SmokeRequest, error: ModelError) -> bool:
        """Whether an error can be due to what was sent, so that the next request may be accepted."""
        # The sizes that follow a refusal may be too large for the model, which is no fault of it.
        is_refusal = may_be_refusal(error.text) or (
            bool(self.refusal) and explain_answer(error.text, "inference-failed")[0] == "out-of-memory"
        )
        first, text = self._first = self._first or (request, error.text)
        # What names a thing outside of the request that has to be there, such as a file or a host, is known.
        is_known = bool(explain_answer(error.text, "inference-failed")[1])
        whatever = error.text == text and is_known and _have_nothing_in_common(request, first)
        whatever = whatever and not (self._asks and NO_TENSOR in error.text)
        lines = [int(frame.rpartition(" in ")[0].rpartition(":")[2]) for frame in error.frames]
        if not self.refusal or lines > self._lines:
            self.refusal, self._lines = ", at ".join((error.reason, *error.frames[-1:])), lines
        return is_refusal and not whatever


def _have_nothing_in_common(request: SmokeRequest, other: SmokeRequest) -> bool:
    """Whether no element of an input is in the same input of another request: their errors are not due to it."""
    return all(set(one.data).isdisjoint(two.data) for one, two in zip(request.inputs, other.inputs, strict=True))
