"""Checks of the responses of a loaded model."""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Iterator, Sequence

from envpack.repository.config_rules import fits
from envpack.server.kserve import RequestError
from envpack.server.tensors import FLOATING, ServedConfig, Tensor
from envpack.support.text import counted
from envpack.verification.answers import LoadedModel, Responses
from envpack.verification.requests import SmokeRequest, and_full_batch, items_of
from envpack.verification.samples import SAMPLES_FILE, Samples
from envpack.verification.verdict import Check, Latency, SampleCount, check, failed, passed, skipped, unchecked, warning

_SHOWN_FAILURES = 3
_LATENCY_SECONDS = 1.0
_ONE_FOR_ONE = "answer with one item for each of the request, or set max_batch_size: 0"
MATCH_CONFIGURATION = "return what config.pbtxt declares, or correct config.pbtxt"


@check(
    "values",
    of="answers",
    condition="Only shown if an output has no finite number, but NaN or infinity in every element, or no element in any"
    " response: a warning",
)
@check(
    "responses",
    of="answers",
    condition="Only shown if a decoupled model ends the stream of each request without a response: a warning",
)
@check(
    "shape",
    of="answers",
    condition="Only shown if an output has another shape than `config.pbtxt` declares, which servers send all the same:"
    " a warning",
)
@check(
    "items",
    of="answers",
    condition="Only shown if a model that batches answers a request for one item with one, and a request for several"
    " with another number: a warning",
)
@check("infer", of="answers", kind="bad-output")
def check_smoke(
    model: LoadedModel, requests: tuple[SmokeRequest, ...], *, has_expected: bool = False
) -> tuple[list[Check], Responses]:
    """All outputs of `config.pbtxt` are there, with their types and all of their elements

    The model answered, but not with what `config.pbtxt` declares: an output is missing, or has another type or
    fewer elements than its shape. The reason names the output, its actual and its declared form. Correct whichever
    is wrong. If an output lacks its elements although the model filled it, the stub was built for NumPy 1 and the
    environment has NumPy 2; envpack's stub supports both. Another shape than the declared one is only a warning,
    since servers send it.
    """
    # The answer to the first request is returned with the checks, since others compare it.
    config = model.config
    shown, shape, lost, infinite = "", "", "", ""
    one_for_one = {entry.name for entry in config.outputs}  # outputs that had one item for each request with one
    empty = [] if has_expected else [entry.name for entry in config.outputs]  # in every response
    sent, answers = [], list[Responses]()
    for request in and_full_batch(config, requests):
        sent.append(request.description)
        items = items_of(config, request.inputs)
        try:
            responses = model.ask(request.inputs, request.parameters)
        except RequestError as error:
            if request is not requests[0]:
                error.sent, error.items = request.description, items
            raise
        answers.append(responses)
        if config.in_sequences and not (any(responses) or has_expected):
            fix = f"provide sequences as samples, with their expected outputs: {model.name}/{SAMPLES_FILE}"
            evidence = f"sent {request.description}, as a sequence of one: the response contains no declared output"
            return [unchecked("infer", evidence, fix)], answers[0]
        shown = shown or _in_words(responses, config)
        for outputs in responses:
            if mismatch := configuration_mismatch(config, outputs):
                return [failed("infer", f"sent {request.description}: {mismatch}", MATCH_CONFIGURATION)], answers[0]
            empty = [name for name in empty if not any(t.data for t in outputs if t.name == name)]
            lost = lost or _lost_item(outputs, items, one_for_one)
            if items == 1:
                one_for_one -= {tensor.name for tensor in outputs if tensor.shape[:1] != (1,)}
            shape = shape or shape_mismatch(config, outputs)
            infinite = infinite or next((tensor.name for tensor in outputs if _is_infinite(tensor)), "")
    return [
        passed("infer", f"{shown}; sent {', '.join(sent)}"),
        *_mentions(answered=any(answers), shape=shape, lost=lost, infinite=infinite, empty=empty),
    ], answers[0]


def _mentions(*, answered: bool, shape: str, lost: str, infinite: str, empty: Sequence[str]) -> Iterator[Check]:
    if not answered:
        evidence = "no request got a response, so none of its outputs was seen"
        yield warning("responses", evidence, "provide samples to which the model sends responses")
    elif empty:
        evidence = f"{empty[0]} has no element in any response, so none of its values was seen"
        yield warning("values", evidence, "provide samples for which the model returns some")
    if shape:
        evidence = f"{shape}: the server sends it, and an ensemble refuses it as an input of its next step"
        yield warning("shape", evidence, MATCH_CONFIGURATION)
    if lost:
        evidence = f"{lost}: clients that send several items in one request do not get all answers"
        yield warning("items", evidence, _ONE_FOR_ONE)
    if infinite:
        evidence = f"no element of {infinite} is a finite number: all are NaN or infinite"
        yield warning("values", evidence, "look for a division by zero, or provide samples that fit the model")


def _in_words(responses: Responses, config: ServedConfig) -> str:
    if config.decoupled:
        return f"streamed {counted(len(responses), 'response')}"
    return f"returned {', '.join(f'{t.name} {t.datatype}{list(t.shape)}' for t in responses[0]) or 'no output'}"


def _is_infinite(tensor: Tensor) -> bool:
    if tensor.datatype not in FLOATING or not tensor.data:
        return False
    return not any(math.isfinite(float(value)) for value in tensor.data)


@check("expected", of="answers", kind="wrong-answers")
def check_samples(model: LoadedModel, samples: Samples) -> tuple[Check, SampleCount | None]:
    """Your samples get the answers that you expect; skipped if none has one

    Fewer samples of `envpack/smoke.json` than required got the expected answer, or one without an expected answer got
    an error. The first differences are shown.
    Correct the model or the expectation; `rtol`, `atol` and `minimum_match` under the key `envpack` set how exact
    answers must be. If the check `later` fails, the first sample was right, and is not after more requests: find what
    the code keeps from one request to the next, such as a list that grows or an array that it changes in place.
    """
    right = refused = 0
    wrong = []
    for index, sample in enumerate(samples.samples):
        try:
            found = model.ask(sample.inputs, sample.parameters)
        except RequestError as error:
            if error.timed_out or not error.status:  # so would every other sample
                raise
            wrong.append(f"{index}: {error.message.splitlines()[0]}")
            refused += sample.expected is None
            continue
        mismatch = sample.difference(found, samples)
        right += sample.expected is not None and not mismatch
        wrong += [f"{index}: {mismatch}"] if mismatch else []
    count = samples.count(right)
    reported = count if samples.have_answers else None
    shown = str(count) if reported else f"none of {count.sent} {count.noun} has expected outputs"
    if count.ok and not refused:
        return (passed if reported else skipped)("expected", shown), reported
    errors = f"; {refused} without expected outputs got an error" if refused else ""
    fix = "correct the model, or the expected outputs of the samples"
    return failed("expected", f"{shown}{errors} ({'; '.join(wrong[:_SHOWN_FAILURES])})", fix), reported


def measure_latency(model: LoadedModel, request: SmokeRequest, count: int) -> tuple[Latency, Responses] | None:
    """Time up to ``count`` answers, one after the other, for at most a second; None if ``count`` is 0."""
    answer: Responses = ()
    seconds: list[float] = []
    until = time.monotonic() + _LATENCY_SECONDS
    while len(seconds) < count and time.monotonic() < until:
        started = time.perf_counter()
        answer = model.ask(request.inputs, request.parameters)
        seconds.append(time.perf_counter() - started)
    if not seconds:
        return None
    return Latency(len(seconds), percentile(seconds, 50), percentile(seconds, 95)), answer


def percentile(values: Sequence[float], part: int) -> float:
    """The value below which ``part`` percent of the values lie, interpolated between the two nearest ones."""
    ordered = sorted(values)
    at = (len(ordered) - 1) * part / 100
    below, above = ordered[math.floor(at)], ordered[math.ceil(at)]
    return below + (above - below) * (at % 1)


def configuration_mismatch(config: ServedConfig, outputs: tuple[Tensor, ...]) -> str:
    """Which output is missing, of another type or incomplete; a start or end of a sequence may have none."""
    if config.in_sequences and not outputs:
        return ""
    by_name = {tensor.name: tensor for tensor in outputs}
    for declared in config.outputs:
        tensor = by_name.get(declared.name)
        if tensor is None:
            # A server drops outputs that the configuration does not declare.
            found = ", ".join(by_name) or "no output of a declared name"
            return f"the output {declared.name} is missing: the response contains {found}"
        if tensor.datatype != declared.datatype:
            return f"the output {declared.name} is {tensor.datatype}, not {declared.datatype}"
        if tensor.size_fault:
            return tensor.size_fault
    return "" if outputs else "there are no outputs"


def _lost_item(outputs: Sequence[Tensor], items: int, one_for_one: Collection[str]) -> str:
    """Which output has fewer or more items than the request, although it has one for a request with one item."""
    for tensor in outputs if items > 1 else ():
        if tensor.name in one_for_one and tensor.shape and tensor.shape[0] != items:
            return f"the output {tensor.name} has {counted(tensor.shape[0], 'item')} for {items} in the request"
    return ""


def shape_mismatch(config: ServedConfig, outputs: tuple[Tensor, ...]) -> str:
    by_name = {tensor.name: tensor for tensor in outputs}
    for declared in config.outputs:
        found = by_name.get(declared.name)
        if found and not fits(found.shape, declared.dims):
            return f"the output {declared.name} has the shape {list(found.shape)}, not {list(declared.dims)}"
    return ""
