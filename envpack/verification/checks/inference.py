"""Checks of the responses of a loaded model."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from envpack.repository.config_rules import fits
from envpack.server.kserve import Client, RequestError, needs_binary
from envpack.server.log import read_model_error
from envpack.server.tensors import BINARY_ONLY, FLOATING, ServedConfig, Tensor, Tolerance, read_served_config
from envpack.support.text import counted
from envpack.verification.answers import TOGETHER, LoadedModel, Responses, responses_difference
from envpack.verification.requests import Chosen, SmokeRequest, and_full_batch, in_one_request, items_of
from envpack.verification.samples import Samples
from envpack.verification.verdict import Check, Latency, SampleCount, check, failed, passed, skipped, warning

_JSON_TOLERANCE = Tolerance(rtol=1e-6, atol=1e-9)
_SHOWN_FAILURES = 3
_REPETITIONS = 8
_LATENCY_SECONDS = 1.0
_ONE_FOR_ONE = "answer with one item for each of the request, or set max_batch_size: 0"
_ROW_BY_ROW = "compute each row of the outputs from the same row of the inputs, for as many as max_batch_size allows"
LEFT_BEHIND = "look for what its first load leaves behind: a file, a folder, a lock, a port"
_MATCH_CONFIGURATION = "return what config.pbtxt declares, or correct config.pbtxt"


@check(
    "values",
    of="answers",
    condition="Only shown if an output has no finite number, but NaN or infinity in every element: a warning",
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
@check("infer", of="answers", step="inference", kind="bad-output")
def check_smoke(model: LoadedModel, requests: tuple[SmokeRequest, ...]) -> tuple[list[Check], Responses]:
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
        shown = shown or _in_words(responses, config)
        for outputs in responses:
            if mismatch := configuration_mismatch(config, outputs):
                return [failed("infer", f"sent {request.description}: {mismatch}", _MATCH_CONFIGURATION)], answers[0]
            lost = lost or _lost_item(outputs, items, one_for_one)
            if items == 1:
                one_for_one -= {tensor.name for tensor in outputs if tensor.shape[:1] != (1,)}
            shape = shape or shape_mismatch(config, outputs)
            infinite = infinite or next((tensor.name for tensor in outputs if _is_infinite(tensor)), "")
    return [
        passed("infer", f"{shown}; sent {', '.join(sent)}"),
        *_mentions(answered=any(answers), shape=shape, lost=lost, infinite=infinite),
    ], answers[0]


def _mentions(*, answered: bool, shape: str, lost: str, infinite: str) -> Iterator[Check]:
    if not answered:
        evidence = "no request got a response, so none of its outputs was seen"
        yield warning("responses", evidence, "provide samples to which the model sends responses")
    if shape:
        evidence = f"{shape}: the server sends it, and an ensemble refuses it as an input of its next step"
        yield warning("shape", evidence, _MATCH_CONFIGURATION)
    if lost:
        evidence = f"{lost}: clients that send several items in one request do not get all answers"
        yield warning("items", evidence, _ONE_FOR_ONE)
    if infinite:
        evidence = f"no element of {infinite} is a finite number: all are NaN or infinite"
        yield warning("values", evidence, "look for a division by zero, or provide samples that fit the model")


@check("mixed-items", of="answers", step="inference", kind="mixed-items")
def check_items(
    model: LoadedModel, requests: tuple[SmokeRequest, SmokeRequest], answers: Sequence[Responses]
) -> Check | None:
    """Only shown if it fails: of a model that batches, each item of a request has the answer that it gets alone, and
    not that of another item. An answer that is neither is a warning, unless it is right beside one other item and wrong
    beside many

    A request for several items got a wrong answer for one of them. The first dimension of all tensors is the batch if
    `max_batch_size` is not 0, and clients send several items in one request. Compute each row of the outputs from the
    same row of the inputs, for as many rows as there may be.
    """
    both = in_one_request(model.config, *requests)
    if both is None:
        return None
    alone = [answer[0] for answer in answers]
    for request in and_full_batch(model.config, [both]):
        found = _wrong_item(model, request, alone)
        if found and any(
            _difference(before, model.ask(each.inputs, each.parameters)[0])
            for each, before in zip(requests, alone, strict=True)
        ):
            return None  # equal requests have different answers
        if found and (found.is_of_another or request is not both):
            return failed("mixed-items", found.what, _ROW_BY_ROW)
        if found:
            fix = f"ignore this if the items of a request belong together; else {_ROW_BY_ROW}"
            return warning("mixed-items", found.what, fix)
    return None


@dataclass(frozen=True)
class _WrongItem:
    what: str
    is_of_another: bool  # whether its answer is that of the other item


def _wrong_item(model: LoadedModel, request: SmokeRequest, alone: Sequence[tuple[Tensor, ...]]) -> _WrongItem | None:
    """The first item of a request, which are two in turn, with another answer than that of the same one alone."""
    count = items_of(model.config, request.inputs)
    try:
        (found,) = model.ask(request.inputs, request.parameters)
    except RequestError as error:
        error.sent, error.items = request.description, count
        raise
    for at in range(count):
        if unequal := _item_difference(alone[at % 2], found, at, count):
            what = f"sent {request.description}: item {at + 1} has another answer than alone: {unequal}"
            is_of_another = not _item_difference(alone[1 - at % 2], found, at, count)
            return _WrongItem(f"{what}, as another item" if is_of_another else what, is_of_another)
    return None


def answer_to_other(model: LoadedModel, request: SmokeRequest) -> Responses | None:
    """The answer to a request that the model may refuse; None if it does."""
    try:
        return model.ask(request.inputs, request.parameters)
    except RequestError as error:
        if error.timed_out or not error.status:
            raise
        return None


def _item_difference(alone: tuple[Tensor, ...], found: tuple[Tensor, ...], at: int, count: int) -> str:
    """How the outputs of an item differ from those that it gets alone; those of another shape are not compared."""
    shapes = {tensor.name: tensor.shape for tensor in alone}
    items = [
        replace(tensor, shape=shapes[tensor.name], data=tensor.data[at * length : (at + 1) * length])
        for tensor, length in ((tensor, len(tensor.data) // count) for tensor in found)
        if shapes.get(tensor.name) == (1, *tensor.shape[1:]) and tensor.shape[0] == count
    ]
    names = {tensor.name for tensor in items}
    expected = tuple(tensor for tensor in alone if tensor.name in names)
    return responses_difference((expected,), (tuple(items),), lambda _: TOGETHER)


@check("constant", of="answers")
def check_constant(model: LoadedModel, other: SmokeRequest, answers: tuple[Responses, Responses]) -> Check | None:
    """Only shown if an output of floating-point numbers is the same for two requests with different inputs, which are
    generated or samples without expected answers: a warning

    Other outputs, such as labels, may be the same. If the other request is answered otherwise than `config.pbtxt`
    declares, `infer` fails.
    """
    first, second = answers
    if mismatch := next(filter(None, (configuration_mismatch(model.config, outputs) for outputs in second)), ""):
        return failed("infer", f"sent {other.description}: {mismatch}", _MATCH_CONFIGURATION)
    if len(first) != 1 or len(second) != 1:
        return None
    found = {tensor.name: tensor for tensor in second[0]}
    same = [
        tensor.name
        for tensor in first[0]
        if tensor.datatype in FLOATING and tensor.data and found.get(tensor.name) == tensor
    ]
    if not same:
        return None
    fix = "ignore this if the output does not depend on the inputs; else find in execute where they get lost"
    return warning("constant", f"{same[0]} had the same numbers for two requests with different inputs", fix)


def _in_words(responses: Responses, config: ServedConfig) -> str:
    if config.decoupled:
        return f"streamed {counted(len(responses), 'response')}"
    return f"returned {', '.join(f'{t.name} {t.datatype}{list(t.shape)}' for t in responses[0])}"


def _is_infinite(tensor: Tensor) -> bool:
    if tensor.datatype not in FLOATING or not tensor.data:
        return False
    return not any(math.isfinite(float(value)) for value in tensor.data)


@check("formats", of="answers", step="inference", kind="formats-differ")
def check_formats(model: LoadedModel, request: SmokeRequest) -> Check | None:
    """JSON and binary requests get the same answers

    The same request got different answers as JSON and as binary data, and each format the same one again and again.
    The cause is the stub, never the model. Use envpack's stub. The check is skipped if equal requests have different
    answers.
    """
    # JSON cannot represent some tensors.
    types = {entry.datatype for entry in (*model.config.inputs, *model.config.outputs)}
    if types & BINARY_ONLY or any(needs_binary(tensor) for tensor in request.inputs):
        return None

    def answer(*, binary: bool) -> tuple[Tensor, ...]:
        return model.client.infer(model.name, request.inputs, binary=binary, parameters=request.parameters)

    by_binary = answer(binary=True)
    if any(needs_binary(tensor) for tensor in by_binary):
        return None
    by_json = answer(binary=False)
    unequal = _difference(by_binary, by_json)
    if not unequal:
        return passed("formats", "JSON and binary requests have equal responses")
    # A model that alternates, or whose instances differ, answers the same format differently, too. More requests in a
    # row than it has instances meet all of them.
    for first, binary in ((by_json, False), (by_binary, True)):
        for _ in range(_REPETITIONS):
            if varying := _difference(first, answer(binary=binary)):
                return skipped("formats", f"not compared: equal requests have different responses: {varying}")
    return failed("formats", f"as JSON, {unequal}", "the stub mishandles tensors; use envpack's stub")


def _difference(expected: tuple[Tensor, ...], found: tuple[Tensor, ...]) -> str:
    return responses_difference((expected,), (found,), lambda _: _JSON_TOLERANCE)


@check("expected", of="answers", step="inference", kind="wrong-answers")
def check_samples(model: LoadedModel, samples: Samples) -> tuple[Check, SampleCount | None]:
    """Your samples get the answers that you expect; skipped if none has one

    Fewer samples of `envpack/smoke.json` than required got the expected answer, or one without an expected answer got
    an error. The first differences are shown.
    Correct the model or the expectation; `rtol`, `atol` and `minimum_match` under the key `envpack` set how exact
    answers must be.
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


def check_second_load(check: str, client: Client, name: str, chosen: Chosen) -> Check | None:
    """The failed ``check`` of a model that has answered before, and does not now, or wrongly; a warning if its answer
    is another one; None for any other model.

    No more samples are sent than that takes: one, if it is right.
    """
    request = chosen.requests[0]
    try:
        model = LoadedModel(client, name, read_served_config(client.config(name)))
        answer = model.ask(request.inputs, request.parameters)
        if wrong := _wrong_sample(model, chosen.samples):
            return failed(check, f"loaded a second time, {name} has a wrong answer to a sample: {wrong}", LEFT_BEHIND)
        unequal = responses_difference(chosen.answer, answer, lambda _: TOGETHER)
        again = model.ask(request.inputs, request.parameters) if unequal else answer
    except RequestError as error:
        reason = read_model_error(error.message, "").reason
        return failed(check, f"loaded a second time, {name} answers with an error: {reason}", LEFT_BEHIND)
    if not unequal or responses_difference(answer, again, lambda _: TOGETHER):
        return None
    fix = f"ignore this if it learns, or begins with weights at random; else {LEFT_BEHIND}"
    return warning(check, f"loaded a second time, {name} has another answer than before: {unequal}", fix)


def _wrong_sample(model: LoadedModel, samples: Samples | None) -> str:
    """How the answer to a sample differs from the expected one, if more than may be wrong are."""
    if samples is None or model.config.in_sequences:
        return ""
    count, wrong = samples.count(0), ""
    expected = (sample for sample in samples.samples if sample.expected is not None)
    for sample in itertools.islice(expected, count.expected - count.needed + 1 if count.needed else 0):
        wrong = sample.difference(model.ask(sample.inputs, sample.parameters), samples)
        if not wrong:
            return ""
    return wrong


def measure_latency(model: LoadedModel, request: SmokeRequest, count: int) -> Latency | None:
    """Time up to ``count`` complete answers, one after the other, for at most a second; None if ``count`` is 0."""
    seconds: list[float] = []
    until = time.monotonic() + _LATENCY_SECONDS
    while len(seconds) < count and time.monotonic() < until:
        started = time.perf_counter()
        model.ask(request.inputs, request.parameters)
        seconds.append(time.perf_counter() - started)
    if not seconds:
        return None
    return Latency(len(seconds), percentile(seconds, 50), percentile(seconds, 95))


def percentile(values: Sequence[float], part: int) -> float:
    """The value below which ``part`` percent of the values lie, interpolated between the two nearest ones."""
    ordered = sorted(values)
    at = (len(ordered) - 1) * part / 100
    below, above = ordered[math.floor(at)], ordered[math.ceil(at)]
    return below + (above - below) * (at % 1)


def configuration_mismatch(config: ServedConfig, outputs: tuple[Tensor, ...]) -> str:
    """Which output of a response is missing, of another type or without its elements, ``""`` if none is."""
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
    """Which output of a response has another shape than a configuration declares, ``""`` if none has."""
    by_name = {tensor.name: tensor for tensor in outputs}
    for declared in config.outputs:
        found = by_name.get(declared.name)
        if found and not fits(found.shape, declared.dims):
            return f"the output {declared.name} has the shape {list(found.shape)}, not {list(declared.dims)}"
    return ""
