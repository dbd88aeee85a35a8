"""Checks what a model answers when many clients ask at once: the server then merges requests into batches.

A model can be right for one client and wrong for many: it answers a batch with one response, or with the responses in
another order, keeps the inputs of a request in itself, or fails a whole batch for one bad request.
"""

from __future__ import annotations

import itertools
import operator
import random
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from envpack.server.kserve import InferMessage, RequestError
from envpack.server.log import read_model_error
from envpack.server.tensors import ServedConfig, Tensor, Value
from envpack.verification.answers import LoadedModel, Responses, in_sequence, responses_difference
from envpack.verification.explanations import may_be_refusal
from envpack.verification.requests import PLAIN, Filling, SmokeRequest, generate_variants, items_of, with_items
from envpack.verification.samples import SAMPLES_FILE, Samples
from envpack.verification.verdict import Check, check, failed, passed, skipped, unchecked, warning

_CLIENTS = 32
_VARIANTS = 8
_ROUNDS = 3  # with batches, if the server merges requests
_ROUNDS_SECONDS = 2.0
_ALONE_SECONDS = 2.0  # for the answers to single requests, which those of many are compared with
# For a round, if requests are answered one after the other; at most half of the client's limit.
_TOGETHER_SECONDS = 10.0
# How a server refuses a request by the policy of a queue: too many wait, or it has waited for too long.
_OF_THE_QUEUE = re.compile(r"Exceeds maximum queue size|Request timeout expired")
_UNAVAILABLE = 503  # its status
_MOST_BYTES = 64 << 20  # of the requests of a round
_FIX = (
    "give each request of the list that execute gets its own response, in the same order, for as many items as it has,"
    " and keep none in the model"
)

_FILLED_UP = (
    "; the server fills batches up with requests whose correlation_id() is 0 and READY is false: answer these with"
    " anything, and keep nothing of them"
)
_ANEW = "begin every sequence anew in execute, whatever came before it and whatever its id was used for"
_RANDOM = (
    "keep nothing of one request for the next, let all instances answer alike, and send responses in one order; answers"
    " that are random on purpose are right, and cannot be compared"
)
_PADDED = (
    "if what follows is padding to the longest request of a batch, let clients ignore it, as with a mask; else give"
    " each request as many elements as it has alone"
)

_Requests = tuple[SmokeRequest, ...]
"""The requests of one client, in their order."""


@dataclass(frozen=True)
class Conversation:
    """One client's requests in their order, with the answers alone; none if the model refuses one by itself."""

    requests: _Requests
    answers: tuple[Responses, ...]


def is_asked_together(config: ServedConfig) -> bool:
    """Whether requests of several clients meet in a model: in batches, sequences, instances, or as open streams."""
    return (
        config.decoupled or config.merges or config.in_sequences or config.sequences_at_once > 1 or config.instances > 1
    )


@check("concurrency", of="answers", kind="wrong-together")
def check_together(
    model: LoadedModel, samples: Samples | None, filling: Filling = PLAIN, outputs: Sequence[str] = ()
) -> Check | None:
    """If the model batches, has several instances, answers sequences, or is decoupled: up to 32 requests, different
    ones and mixed, reach it at once, and each gets the answer that it gets alone; where the server merges them, their
    length and their number of items differ, too; the report says how large the batches were. For code that reads
    `requested_output_names()`, some request one output alone. A sequence whose id was used before gets the answers of
    a new one; without samples it has three requests, and is not checked if the model refuses that. Answers that are
    longer than alone, and begin as there, are a warning, and so are different answers to equal requests, one after the
    other, which cannot be compared

    Requests of many clients that reach the model at the same time fail, or get other answers than alone. The server
    merges such requests into one call of `execute` (`dynamic_batching`), runs several instances, or takes turns
    between sequences. Give each request its own response, in the order of the list that `execute` gets, for as many
    items as it has, and let no answer depend on the length of other requests; keep
    nothing of a request in `self`, in a buffer that responses share, or in a file with a fixed name; forget what
    belongs to a sequence when it ends, and when another begins with its id; and answer a request that cannot be served
    with an error of its own instead of an exception, which fails its neighbours too. With the strategy `direct` for
    sequences, the server fills batches up with requests whose `correlation_id()` is 0: answer them, and keep nothing.
    """
    alone = _Alone(model, from_user=samples is not None)
    conversations = list(alone.ask(_and_of_one_output(_requests(model.config, samples, filling), outputs)))
    if not any(conversation.answers for conversation in conversations):
        fix = f"provide sequences as samples: {model.name}/{SAMPLES_FILE}"
        return unchecked("concurrency", alone.refusal, fix) if model.config.in_sequences else None
    if alone.reused:
        evidence = f"a sequence whose id was used before has other answers than with a new id: {alone.reused}"
        return failed("concurrency", evidence, _ANEW)
    at_once = model.config.sequences_at_once or _CLIENTS
    clients = min(_CLIENTS, at_once, alone.most_clients())
    if clients < 2:
        few = "the model answers one sequence at a time" if at_once < 2 else ""
        why = few or f"one request takes {alone.slowest:.1f} s or is too large"
        return _not_compared(alone, "") or skipped("concurrency", f"not sent at once: {why}")
    burst = _Burst(model, conversations, clients)
    burst.send_rounds()
    return _judged(burst, alone)


def _requests(config: ServedConfig, samples: Samples | None, filling: Filling) -> Iterator[list[_Requests]]:
    """The requests of each client, in the forms that are tried until the model accepts one: first those that differ in
    length and in their number of items, which a model must not mix up; the plainest last.
    """
    if samples is None:
        variants = (generate_variants(config, _VARIANTS, filling, uneven=uneven) for uneven in (True, False))
        for at, (other, plain) in enumerate(zip(*variants, strict=True)):
            forms = [plain] if other == plain else [other, plain]
            yield _forms(config, at, [(form,) * (3 if config.in_sequences else 1) for form in forms])
        return
    current: list[SmokeRequest] = []
    at = 0
    for sample in samples.samples:
        current.append(SmokeRequest("with a sample", sample.inputs))
        if not config.in_sequences or sample.parameters.get("sequence_end"):
            yield _forms(config, at, [tuple(current)])
            current, at = [], at + 1


def _and_of_one_output(requests: Iterator[list[_Requests]], outputs: Sequence[str]) -> Iterator[list[_Requests]]:
    """The requests of each client, and of another one that requests one of ``outputs`` alone."""
    for forms, name in zip(requests, itertools.cycle(outputs or [""]), strict=False):
        yield forms
        if name:
            yield [tuple(replace(request, outputs=(name,)) for request in form) for form in forms]


def _forms(config: ServedConfig, at: int, forms: list[_Requests]) -> list[_Requests]:
    """The forms of a client's requests; for every second pair of clients, the first one comes with two items before."""
    (request, *_) = forms[0]
    if at % 4 < 2 or not config.merges or config.largest_batch < 2 or items_of(config, request.inputs) != 1:
        return forms
    return [(replace(with_items(request, 2), description=f"{request.description}, for two items"),), *forms]


class _Alone:
    """Asks every conversation twice, one after the other, and sequences once more with an id that was used before."""

    def __init__(self, model: LoadedModel, *, from_user: bool) -> None:
        self._model = model
        self._from_user = from_user  # whether the requests are the user's, whose errors another check reports
        self.noun = "sequences" if model.config.in_sequences else "requests"
        self._next_id = 1 << 20 if model.config.in_sequences else 0  # the user's samples have smaller ones
        self.varying = ""  # how the answers to equal requests differ
        self.refusal = ""  # which request it refuses, and why
        self.reused = ""  # how those to a sequence differ whose id was used before, if they are equal with new ids
        self.slowest = 0.0  # how long the slowest answer took, in seconds
        self.largest = 1  # size of the largest request in bytes

    def most_clients(self) -> int:
        """How many clients may ask at once, so that all have their answers well within the client's limit."""
        seconds = min(_TOGETHER_SECONDS, self._model.client.timeout / 2)
        return int(min(seconds / max(self.slowest, 1e-6), _MOST_BYTES / self.largest))

    def ask(self, requests: Iterator[list[_Requests]]) -> Iterator[Conversation]:
        """The conversations that there is time for, one at least; those that the model refuses are no sequences."""
        until, first = time.monotonic() + _ALONE_SECONDS, True
        for _, forms in zip(range(_VARIANTS), requests, strict=False):
            if not first and time.monotonic() > until:
                return
            found = next(filter(None, map(self._accepted, forms)), None)
            if found:
                first = False
                yield found
            elif not self._next_id:
                yield Conversation(forms[-1], ())

    def _accepted(self, requests: _Requests) -> Conversation | None:
        sent = requests[0].description + (f", in a sequence of {len(requests)}" if len(requests) > 1 else "")
        try:
            answers = self._answers(requests)
            again = answers if self.most_clients() < 2 else self._answers(requests)  # else nothing is compared
            reused = self._answers(requests, new_id=False) if self._next_id and again is not answers else again
        except RequestError as error:
            if error.timed_out or not error.status or not (self._from_user or may_be_refusal(error.message)):
                error.sent = sent
                raise
            self.refusal = self.refusal or f"refuses a request {sent}: {read_model_error(error.message, '').reason}"
            return None
        self.varying = self.varying or _first_mismatch(answers, again)
        self.reused = self.reused or ("" if self.varying else _first_mismatch(again, reused))
        return Conversation(requests, answers)

    def _answers(self, requests: Sequence[SmokeRequest], *, new_id: bool = True) -> tuple[Responses, ...]:
        if self._next_id and new_id:
            self._next_id += 1
        return tuple(
            self._answer(
                self._model.message(request.inputs, in_sequence(self._next_id, step, len(requests)), request.outputs)
            )
            for step, request in enumerate(requests)
        )

    def _answer(self, message: InferMessage) -> Responses:
        self.largest, started = max(self.largest, len(message.body)), time.monotonic()
        (answer,) = self._model.ask_together([message])
        self.slowest = max(self.slowest, time.monotonic() - started)
        if isinstance(answer, RequestError):
            raise answer
        return answer


class _Burst:
    """Requests of many clients at the same time."""

    def __init__(self, model: LoadedModel, conversations: Sequence[Conversation], clients: int) -> None:
        self._model = model
        self.config = model.config
        self._conversations = conversations
        self._order = random.Random(1)  # noqa: S311 - the same order in every run
        self._next_id = 2 << 20
        self.clients = clients
        # Numbers of requests: whose answer is that of another, that a policy of the queue refused, whose answers were
        # compared with those that they get alone.
        self.sent = self.exchanged = self.refused = self.compared = 0
        self.errors: list[str] = []  # what requests failed with that are answered alone
        self.wrong: list[str] = []  # how answers differ from those that their requests get alone
        self.padded: list[str] = []  # how those differ that are only longer
        self.largest = 1.0  # mean number of requests in a batch of the round with the largest batches

    def send_rounds(self) -> None:
        """Send rounds until batches formed in some of them, a request did not get its answer, or time is up."""
        until, rounds = time.monotonic() + _ROUNDS_SECONDS, 0
        # Requests of sequences meet in batches, too, if they come at once, which they may not on a busy machine.
        batches = self.config.merges or (self.config.sequences_at_once > 1 and self.config.largest_batch > 1)
        while rounds < _ROUNDS and not (self.errors or self.wrong):
            requests, executions = self._counts()
            self._send_round()
            requests_now, executions_now = self._counts()
            mean = (requests_now - requests) / max(1, executions_now - executions)
            self.largest = max(self.largest, mean)
            rounds += mean > 1 or not batches
            if time.monotonic() > until:
                return

    def _send_round(self) -> None:
        clients = [self._conversations[number % len(self._conversations)] for number in range(self.clients)]
        self._order.shuffle(clients)
        identifiers = [self._next_id + number if self.config.in_sequences else 0 for number in range(self.clients)]
        self._next_id += self.clients
        for step in range(max(len(conversation.requests) for conversation in clients)):
            asking = [
                (conversation, in_sequence(identifier, step, len(conversation.requests)))
                for conversation, identifier in zip(clients, identifiers, strict=True)
                if step < len(conversation.requests)
            ]
            messages = [
                self._model.message(request.inputs, parameters, request.outputs)
                for request, parameters in ((conversation.requests[step], rest) for conversation, rest in asking)
            ]
            self.sent += len(messages)
            for (conversation, _), answer in zip(asking, self._model.ask_together(messages), strict=True):
                self._compare(conversation, step, answer)

    def _compare(self, conversation: Conversation, step: int, answer: Responses | RequestError) -> None:
        if isinstance(answer, RequestError) and answer.connection_lost:
            raise answer
        if not conversation.answers:  # refused alone, and so perhaps here; its neighbours must not notice
            return
        if isinstance(answer, RequestError):
            if self.config.refuses and answer.status == _UNAVAILABLE and _OF_THE_QUEUE.search(answer.message):
                self.refused += 1
            else:
                self.errors.append(next(iter(answer.message.splitlines()), ""))
            return
        alone = conversation.answers[step]
        unequal = responses_difference(alone, answer)
        self.compared += 1
        if not unequal:
            return
        unequal = f"the answer to the request {conversation.requests[step].description}: {unequal}"
        if not responses_difference(alone, shortened(answer, alone, items=min(1, self.config.largest_batch))):
            self.padded.append(unequal)
            return
        self.wrong.append(unequal)
        others = (other.answers[step] for other in self._conversations if step < len(other.answers))
        self.exchanged += any(not responses_difference(other, answer) for other in others)

    def _counts(self) -> tuple[int, int]:
        """Requests and executions of the model so far; `inference_count` has the items of requests."""
        versions = self._model.client.statistics(self._model.name).get("model_stats", [])
        requests = sum(int(version["inference_stats"]["success"].get("count", 0)) for version in versions)
        return requests, sum(int(version.get("execution_count", 0)) for version in versions)


def _first_mismatch(expected: tuple[Responses, ...], found: tuple[Responses, ...]) -> str:
    return next(filter(None, map(responses_difference, expected, found)), "")


def shortened(found: Responses, alone: Responses, items: int) -> Responses:
    """The responses, their outputs cut to shapes that they have alone, if the first ``items`` dimensions agree."""
    if len(found) != len(alone):
        return found
    shapes = [{tensor.name: tensor.shape for tensor in response} for response in alone]
    return tuple(
        tuple(_cut(tensor, of.get(tensor.name, ()), items) for tensor in response)
        for response, of in zip(found, shapes, strict=True)
    )


def _cut(tensor: Tensor, shape: tuple[int, ...], items: int) -> Tensor:
    def inside(data: Sequence[Value], sizes: Sequence[int], kept: Sequence[int]) -> Sequence[Value]:
        if sizes == kept:
            return data
        length = len(data) // sizes[0]
        rows = (data[row * length : (row + 1) * length] for row in range(kept[0]))
        return [value for row in rows for value in inside(row, sizes[1:], kept[1:])]

    if not tensor.data or len(tensor.shape) != len(shape) or tensor.shape[:items] != shape[:items]:
        return tensor
    if any(map(operator.lt, tensor.shape, shape)):
        return tensor
    return replace(tensor, shape=shape, data=tuple(inside(tensor.data, tensor.shape, shape)))


def _not_compared(alone: _Alone, sent: str) -> Check | None:
    """The warning that equal requests have different answers, after what was ``sent`` at once."""
    if not alone.varying:
        return None
    what = f"{sent}not compared: equal {alone.noun}, one after the other, have different answers: {alone.varying}"
    return warning("concurrency", what, _ANEW if alone.noun == "sequences" else _RANDOM)


def _judged(burst: _Burst, alone: _Alone) -> Check:
    together = f"of {burst.sent} requests that {burst.clients} clients sent at once"
    fix = _FIX + (_FILLED_UP if burst.config.fills_up and burst.config.largest_batch > 1 else "")
    if burst.errors:
        return failed("concurrency", f"{len(burst.errors)} {together} failed: {burst.errors[0]}", fix)
    if not_compared := _not_compared(alone, f"0 {together} failed; "):
        return not_compared
    if burst.wrong:
        whose = f", {burst.exchanged} of them the answer to another request" if burst.exchanged else ""
        evidence = f"{len(burst.wrong)} {together} have wrong answers{whose}; alone they are right: {burst.wrong[0]}"
        return failed("concurrency", evidence, fix)
    if burst.refused and not burst.compared:
        return skipped("concurrency", f"no answer to compare: the queue's policy refused {burst.refused} {together}")
    if burst.padded:
        evidence = f"{len(burst.padded)} {together} have longer answers than alone: {burst.padded[0]}"
        return warning("concurrency", evidence, _PADDED)
    formed = f"batches of {burst.largest:.1f} requests formed" if burst.largest > 1 else "no batch formed"
    refused = f", {burst.refused} refused by the queue's policy" if burst.refused else ""
    return passed("concurrency", f"all answers {together} are those that they get alone; {formed}{refused}")
