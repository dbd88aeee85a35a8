"""Checks that compare the answers of a loaded model to several requests."""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Sequence
from dataclasses import replace

from envpack.server.kserve import Client, RequestError, needs_binary
from envpack.server.log import read_model_error
from envpack.server.tensors import BINARY_ONLY, FLOATING, Tensor, Tolerance, read_served_config
from envpack.verification.answers import LoadedModel, Responses, responses_difference
from envpack.verification.checks.inference import MATCH_CONFIGURATION, configuration_mismatch
from envpack.verification.choice import Chosen
from envpack.verification.explanations import may_be_refusal
from envpack.verification.requests import SmokeRequest, and_full_batch, in_one_request, items_of
from envpack.verification.samples import Samples
from envpack.verification.verdict import Check, check, failed, passed, skipped, warning

_JSON_TOLERANCE = Tolerance(rtol=1e-6, atol=1e-9)
_REPETITIONS = 8
_ROW_BY_ROW = "compute each row of the outputs from the same row of the inputs, for as many as max_batch_size allows"
_ANY_LENGTH = (
    "compute for inputs of any length, or declare in config.pbtxt the length that it takes; ignore this if clients send"
    " no other"
)
_ANY_OF_THEM = "answer without any input that config.pbtxt declares optional; ignore this if clients send them together"
_WHICH_OUTPUTS = "let execute answer whatever requested_output_names() has: clients may ask for any of the outputs"
_AS_UTF_8 = (
    "decode and encode strings as UTF-8, name the encoding of files, and make arrays of text with dtype=object,"
    " never np.bytes_"
)
_KEPT = "find what execute keeps from one request to the next"
_OF_ANY_LENGTH = "cut text to what the model takes, as tokenizers do with truncation=True, or say how much that is"
_OF_CODEC = re.compile(r"codec can't (?:en|de)code")
# What arrays and models say of more tokens than they have places for.
_OF_LENGTH = re.compile(r"must match the (?:existing )?size|out of (?:range|(?:data )?bounds)|is not in \[0")
_SLOW_FIRST = 2.0  # seconds, which many clients do not wait
_WARM_UP = "load and compile in initialize, or let model_warmup (batch_size: 1) in config.pbtxt send the first request"
LEFT_BEHIND = "look for what its first load leaves behind: a file, a folder, a lock, a port"


@check("mixed-items", of="answers", kind="mixed-items")
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
        if found:
            what, is_of_another = found
            if is_of_another or request is not both:
                return failed("mixed-items", what, _ROW_BY_ROW)
            fix = f"ignore this if the items of a request belong together; else {_ROW_BY_ROW}"
            return warning("mixed-items", what, fix)
    return None


def _wrong_item(
    model: LoadedModel, request: SmokeRequest, alone: Sequence[tuple[Tensor, ...]]
) -> tuple[str, bool] | None:
    """The first of the items, two in turn, with another answer than alone, and whether that is the other item's."""
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
            return f"{what}, as another item" if is_of_another else what, is_of_another
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
    return responses_difference((expected,), (tuple(items),))


@check("constant", of="answers")
def check_constant(model: LoadedModel, other: SmokeRequest, answers: tuple[Responses, Responses]) -> Check | None:
    """Only shown if an output of floating-point numbers is the same for two requests with different inputs, which are
    generated or samples without expected answers: a warning

    Other outputs, such as labels, may be the same. If the other request is answered otherwise than `config.pbtxt`
    declares, `infer` fails.
    """
    first, second = answers
    if mismatched := _mismatched(model, other, second):
        return mismatched
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


@check("lengths", of="answers")
def check_lengths(model: LoadedModel, request: SmokeRequest) -> Check | None:
    """Only shown if generated inputs of one element are answered, and longer ones with an error, although
    `config.pbtxt` leaves their length open (`-1`): a warning
    """
    responses, refusal = _answer_or_refusal(model, request)
    if refusal:
        why = f"answers inputs of one element, and longer ones with an error: sent {request.description}: {refusal}"
        return warning("lengths", why, _ANY_LENGTH)
    return _mismatched(model, request, responses)


@check("optional", of="answers")
def check_optional(model: LoadedModel, requests: Sequence[SmokeRequest]) -> Check | None:
    """Only shown if generated requests with all optional inputs are answered, and those that have only one of them with
    an error: a warning
    """
    for request in requests:
        responses, refusal = _answer_or_refusal(model, request)
        if refusal:
            return warning("optional", f"answers with an error: sent {request.description}: {refusal}", _ANY_OF_THEM)
        if mismatched := _mismatched(model, request, responses):
            return mismatched
    return None


@check("outputs", of="answers")
def check_outputs(model: LoadedModel, request: SmokeRequest) -> Check | None:
    """Only for code that reads `requested_output_names()`, if a request for one of several outputs gets an error, or a
    response without that output: a warning
    """
    make, parameters = model.client.infer_message, request.parameters
    for name in (entry.name for entry in model.config.outputs):
        message = make(model.name, request.inputs, binary=True, parameters=parameters, outputs=[name])
        (answer,) = model.ask_together([message])
        if isinstance(answer, RequestError):
            reason = read_model_error(answer.message, "").reason
            answer.sent = f"{request.description}, for the output {name} alone"
            if answer.timed_out or not answer.status or not may_be_refusal(reason):
                raise answer
            return warning("outputs", f"answers with an error: sent {answer.sent}: {reason}", _WHICH_OUTPUTS)
        if name not in {tensor.name for tensor in answer[0]}:
            what = f"the response is without {name}: sent {request.description}, for the output {name} alone"
            return warning("outputs", what, _WHICH_OUTPUTS)
    return None


def _mismatched(model: LoadedModel, request: SmokeRequest, responses: Responses) -> Check | None:
    mismatches = (configuration_mismatch(model.config, outputs) for outputs in responses)
    mismatch = next(filter(None, mismatches), "")
    return failed("infer", f"sent {request.description}: {mismatch}", MATCH_CONFIGURATION) if mismatch else None


@check("text", of="answers")
def check_text(model: LoadedModel, request: SmokeRequest) -> Check | None:
    """Only shown if the strings of generated inputs are answered in short ASCII alone, and long ones of other languages
    with an error of a codec, or of an array that is too short: a warning
    """
    _, refusal = _answer_or_refusal(model, request)
    if _OF_CODEC.search(refusal):
        return warning("text", f"answers text in ASCII alone: sent {request.description}: {refusal}", _AS_UTF_8)
    if _OF_LENGTH.search(refusal):
        return warning("text", f"answers short text alone: sent {request.description}: {refusal}", _OF_ANY_LENGTH)
    return None


def _answer_or_refusal(model: LoadedModel, request: SmokeRequest) -> tuple[Responses, str]:
    """The answer to a request, or the error with which the model refuses it; any other error is raised."""
    try:
        return model.ask(request.inputs, request.parameters), ""
    except RequestError as error:
        reason = read_model_error(error.message, "").reason
        error.sent = request.description
        if error.timed_out or not error.status or not may_be_refusal(reason):
            raise
        return (), reason


@check("formats", of="answers", kind="formats-differ")
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


@check("later", of="answers", kind="wrong-answers")
def check_later(
    model: LoadedModel, request: SmokeRequest, before: Responses, last: Responses, samples: Samples | None
) -> Check | None:
    """Only shown if the answer to the first request is another one after the timed requests, and stays so: failed if it
    was the expected one before and all samples must be right, else a warning
    """
    unequal = responses_difference(before, last)
    if not unequal or responses_difference(last, model.ask(request.inputs, request.parameters)):
        return None
    what = f"after more requests, the answer to the same one is another: {unequal}"
    if samples and samples.minimum_match == 1:
        was_wrong, is_wrong = (samples.samples[0].difference(answer, samples) for answer in (before, last))
        if is_wrong and not was_wrong:
            return failed("later", what, _KEPT)
    return warning("later", what, f"ignore this if the model learns from requests; else {_KEPT}")


def check_second_load(check: str, client: Client, name: str, chosen: Chosen) -> Check | None:
    """What is wrong with the answers after a second load, as the check of that name: wrong ones fail, other or slow
    ones are a warning. No more samples are sent than that takes: one, if it is right.
    """
    request = chosen.requests[0]
    try:
        model = LoadedModel(client, name, read_served_config(client.config(name)))
        answer, first = _timed_answer(model, request)
        if wrong := _wrong_sample(model, chosen.samples):
            return failed(check, f"loaded a second time, {name} has a wrong answer to a sample: {wrong}", LEFT_BEHIND)
        unequal = responses_difference(chosen.answer, answer)
        again, later = _timed_answer(model, request) if unequal or first > _SLOW_FIRST else (answer, first)
    except RequestError as error:
        reason = read_model_error(error.message, "").reason
        return failed(check, f"loaded a second time, {name} answers with an error: {reason}", LEFT_BEHIND)
    if unequal and not responses_difference(answer, again):
        fix = f"ignore this if it learns, or begins with weights at random; else {LEFT_BEHIND}"
        return warning(check, f"loaded a second time, {name} has another answer than before: {unequal}", fix)
    if first > max(_SLOW_FIRST, 10 * later):
        what = f"after each load, {name} answers its first request in {first:.1f} s, and the next in {later:.2f} s"
        return warning(check, what, _WARM_UP)
    return None


def _timed_answer(model: LoadedModel, request: SmokeRequest) -> tuple[Responses, float]:
    started = time.monotonic()
    return model.ask(request.inputs, request.parameters), time.monotonic() - started


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
