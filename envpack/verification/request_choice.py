"""Chooses the requests that a loaded model is verified with: its samples, or generated ones that it accepts."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

from envpack.repository import Model
from envpack.server import Client, RequestError, ServedConfig, Server, read_model_error
from envpack.verification.answers import ask, unsendable
from envpack.verification.explanation import explain_answer, may_be_refusal
from envpack.verification.generated import (
    PLAIN,
    Filling,
    SmokeRequest,
    fillings,
    generate_other,
    generate_requests,
    inputs_too_large,
)
from envpack.verification.samples import SAMPLES_FILE, Samples, read_samples
from envpack.verification.verdict import Check, unchecked

REFUSES = "loads; needs a sample, since it refuses generated inputs: "
_FILLING_SECONDS = 10.0  # for generated requests that the model refuses


@dataclass(frozen=True)
class Chosen:
    """The requests for a model."""

    requests: tuple[SmokeRequest, ...]  # at least one; the first is also the one that is timed
    samples: Samples | None = None  # the user's samples, None if the requests are generated
    filling: Filling = PLAIN  # what generated requests hold
    # A request with other inputs than the first one; None if there is none, or if answers are compared with those that
    # the samples expect.
    other: SmokeRequest | None = None


def choose_requests(server: Server, client: Client, model: Model, config: ServedConfig) -> Chosen | Check:
    """The user's samples, or generated requests that the model accepts; a check that says why there are none."""
    file = model.folder / SAMPLES_FILE
    samples = read_samples(file, config) if os.path.lexists(file) else None
    inputs = [sample.inputs for sample in samples.samples] if samples else [()]
    reason = next(filter(None, (unsendable(config, each) for each in inputs)), "")
    if reason:
        return unchecked("infer", f"not sent: {reason}", "send it requests with a client of gRPC")
    if samples:
        return Chosen(_first_request(samples), samples, other=_other_sample(samples))
    if not config.inputs:
        why = "not sent: neither config.pbtxt nor the model names an input"
        return unchecked("infer", why, "declare the inputs in config.pbtxt or in auto_complete_config")
    if inputs_too_large(config):
        why = "not sent: config.pbtxt declares inputs too large to make up"
        return unchecked("infer", why, f"provide samples: {model.name}/{SAMPLES_FILE}")
    filling, refusal = _find_filling(server, client, model, config)
    if filling is None:
        return unchecked("infer", f"{REFUSES}{refusal}", f"record one: envpack run {model.name} -i FILE --save-sample")
    requests = tuple(generate_requests(config, filling))
    # Requests to decoupled models are JSON without shapes, which cannot say that there are two items.
    other = generate_other(config, requests[0], filling)
    return Chosen(requests[:1] if config.decoupled else requests, filling=filling, other=other)


def _first_request(samples: Samples) -> tuple[SmokeRequest, ...]:
    """The first sample as a complete sequence; `check_samples` sends all samples with their sequences."""
    first = samples.samples[0]
    parameters = {**first.parameters, "sequence_end": True} if first.parameters else {}
    return (SmokeRequest("with the first sample", first.inputs, parameters),)


def _other_sample(samples: Samples) -> SmokeRequest | None:
    first = samples.samples[0].inputs
    others = (sample.inputs for sample in samples.samples if sample.inputs != first and not samples.have_answers)
    return next((SmokeRequest("with another sample", inputs) for inputs in others), None)


def _find_filling(server: Server, client: Client, model: Model, config: ServedConfig) -> tuple[Filling | None, str]:
    """What generated inputs must hold for the model to accept them; None, and why it refuses the plain ones.

    That a model refuses what was made up is no fault of the model.
    """
    first: tuple[SmokeRequest, str] | None = None
    refusal, until = "", time.monotonic() + _FILLING_SECONDS
    for filling in fillings(config):
        request = next(generate_requests(config, filling))
        if unsendable(config, request.inputs):
            continue
        try:
            ask(client, model.name, config, request.inputs, request.parameters)
        except RequestError as error:
            found = read_model_error(error.message, server.server_path(model.folder))
            # The sizes that follow a refusal may be too large for the model, which is no fault of it.
            is_refusal = may_be_refusal(found.text) or (
                bool(refusal) and explain_answer(found.text, "inference-failed")[0] == "out-of-memory"
            )
            first = first or (request, found.text)
            whatever = found.text == first[1] and _is_known(found.text) and _have_nothing_in_common(request, first[0])
            if error.timed_out or not error.status or not is_refusal or whatever or server.ended():
                raise
            refusal = refusal or ", at ".join((found.reason, *found.frames[-1:]))
            if time.monotonic() > until:
                break
        else:
            return filling, ""
    return None, refusal


def _is_known(message: str) -> bool:
    """Whether an error names a thing outside of the request that has to be there, such as a file or a host."""
    return bool(explain_answer(message, "inference-failed")[1])


def _have_nothing_in_common(request: SmokeRequest, other: SmokeRequest) -> bool:
    """Whether no element of an input is in the same input of another request: their errors are not due to it."""
    return all(set(one.data).isdisjoint(two.data) for one, two in zip(request.inputs, other.inputs, strict=True))
