"""One run of a model: it is loaded, gets samples, files or made-up requests, and is judged as by `envpack verify`."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from pathlib import Path
from typing import Any

from envpack.local.values import SEQUENCE_END, SEQUENCE_START, RawTensor, Request, Response, raw, readable
from envpack.repository.code import sends_requests
from envpack.server.log import read_model_error, stated
from envpack.server.tensors import ServedConfig, Tensor, encode, read_served_config
from envpack.support.bounded_reading import opened, read_bytes
from envpack.support.errors import InputError
from envpack.support.progress import SILENT, Progress
from envpack.support.text import counted
from envpack.testing.model import MOST_BYTES, Models, from_array, read_arrays
from envpack.verification.answers import responses_difference
from envpack.verification.checks.concurrency import shortened
from envpack.verification.checks.inference import configuration_mismatch, percentile
from envpack.verification.choice import DECLARE_THEM, NO_INPUTS, Attempts
from envpack.verification.explanations import explain, explain_answer, reported_error
from envpack.verification.requests import generate_variants, with_items
from envpack.verification.samples import SAMPLES_FILE, Samples, read_samples
from envpack.verification.verdict import SampleCount

_MOST_PAIRS = 4  # of a request and its neighbour in a batch; a model may be right for two requests only
_FIT = "if the model is right to refuse what was made up, {count}, give a request that it takes: --input FILE"


@dataclass
class Answer:
    """What a model answered to one request."""

    request: Request
    _: KW_ONLY
    responses: tuple[Response, ...] = ()  # the responses; more or fewer than one only from a decoupled model
    seconds: list[float] = field(default_factory=list)  # how long each run of it took
    fault: str = ""  # why `envpack verify` would refuse it, ``""`` if it would not
    difference: str = ""  # how it differs from the expected answer, ``""`` if it does not
    made_up: str = ""  # what the inputs hold, if the request was generated; ``""`` if it was given
    # How many generated requests the model refused until it accepted this one, or this one and all others.
    refused: int = 0
    longer: Request | None = None  # generated, to be sent in a batch with this one

    @property
    def fix(self) -> str:
        """How to correct the fault, ``""`` if that is unknown."""
        is_refused = self.refused and self.refusal
        known = fix_of(self.fault) or explain_answer(self.fault, "")[1]
        return known or (_FIT.format(count=counted(self.refused, "request")) if is_refused else "")

    @property
    def refusal(self) -> str:
        """The error that the model raised, or that the text of an output reports; ``""`` without one."""
        return _error(self.responses) or reported_error(self.outputs)[1]

    @property
    def outputs(self) -> tuple[tuple[Tensor, ...], ...]:
        """The output tensors of each response."""
        return _read(self.responses)


@dataclass(frozen=True)
class Trial:
    """One run of a model."""

    model: str  # its name
    config: ServedConfig  # the configuration that it ran with
    load_seconds: float  # how long it took to start, import and initialize it
    answers: tuple[Answer, ...]  # one for each request
    # How many of them are those that the samples expect; None if nothing is expected.
    samples: SampleCount | None = None

    def latency(self) -> dict[str, float]:
        """Mean, percentiles and longest of the seconds that all requests took; empty for fewer than two."""
        seconds = [time for answer in self.answers for time in answer.seconds]
        if len(seconds) < 2:
            return {}
        at = {f"p{part}": percentile(seconds, part) for part in (50, 95, 99)}
        return {"mean": sum(seconds) / len(seconds), **at, "longest": max(seconds)}

    @property
    def ok(self) -> bool:
        """Whether `envpack verify` would accept all answers."""
        return not any(answer.fault for answer in self.answers) and (self.samples is None or self.samples.ok)


def fix_of(text: str) -> str:
    return explain(read_model_error(text, "").text, "")[1]


def try_model(
    models: Models,
    name: str,
    folder: Path,
    sources: Sequence[str] = (),
    *,
    repeat: int = 1,
    progress: Progress = SILENT,
) -> Trial:
    """Load a model, and send it requests; raises `envpack.testing.ModelError` if it cannot be loaded.

    Requests are not repeated once one has failed: a model that has died would be started for each.
    """
    progress.begin(f"{name}: load")
    started = time.perf_counter()
    models.load(name)
    load_seconds = time.perf_counter() - started
    progress.end(f"ready in {load_seconds:.2f} s")
    config = read_served_config(models.config(name))
    given, samples = read_requests(sources, config, name, folder)
    answers = tuple(map(Answer, given)) or _make_up(models, config, name, folder)
    for done in range(repeat):
        for answer in answers:
            if len(answer.seconds) == done:  # what was made up has been sent once
                _send(models, config, answer)
        if samples is not None:
            _compare(answers, samples)
        if any(answer.fault for answer in answers):
            break
    if config.merges and config.batched and not config.decoupled:
        answered = [answer for answer in answers if all(response.error is None for response in answer.responses)]
        _send_together(models, config, answered)
    count = samples.count(_right(answers, samples)) if samples is not None and samples.have_answers else None
    return Trial(name, config, load_seconds, answers, count)


def _make_up(models: Models, config: ServedConfig, name: str, folder: Path) -> tuple[Answer, ...]:
    """The answer to the first of the requests of verify that the model accepts; to the plainest if it refuses all."""
    refused: list[Answer] = []
    attempts = Attempts(config, asks=sends_requests(folder))
    for filling, request in attempts:
        answer = Answer(_request(request.inputs, request.parameters, name), made_up=str(filling) or "ones")
        _send(models, config, answer)
        answer.fault = answer.fault or answer.refusal
        if not answer.refusal:
            answer.refused = len(refused)
            if config.batched:
                *_, other = generate_variants(config, 2, filling, uneven=True)
                answer.longer = _request(with_items(other, 2).inputs, request.parameters, name)
            return (answer,)
        if models.has_ended(name) or not attempts.is_refusal(request, read_model_error(answer.refusal, str(folder))):
            return (answer,)
        refused.append(answer)
    if refused:
        refused[0].refused = len(refused)
    return tuple(refused[:1])


def _send(models: Models, config: ServedConfig, answer: Answer) -> None:
    started = time.perf_counter()
    answer.responses = _answered(models, config, answer.request)
    answer.seconds.append(time.perf_counter() - started)
    answer.fault = answer.fault or _fault(answer.responses, config)


def _answered(models: Models, config: ServedConfig, request: Request) -> tuple[Response, ...]:
    if config.decoupled:
        return tuple(models.stream(request))
    (responses,) = models.infer([request])
    return responses


def _send_together(models: Models, config: ServedConfig, answers: Sequence[Answer]) -> None:
    """Send requests in batches, as a server merges them; each has to get the answer that it gets alone."""
    for batch in _batches(answers, config):
        first, is_alone = batch[0], len(batch) == 1
        if is_alone:
            batch.append(_neighbour(models, config, first))
            items = sum(answer.request.items for answer in batch)
            batch.extend(batch * (min(_MOST_PAIRS, config.largest_batch // items) - 1))
        if sum(answer.request.items for answer in batch) > config.largest_batch:
            continue
        answered = models.infer([answer.request for answer in batch])
        for answer, responses in zip(batch, answered, strict=True):
            fault = _fault(responses, config)
            if not fault and not answer.fault:
                alone = _read(answer.responses)
                # What follows the answer that a request gets alone can be padding, to the longest of the batch.
                found = shortened(_read(responses), alone, 1)
                fault = responses_difference(alone, found)
                fault = fault if fault and _is_repeatable(models, config, answer) else ""
            answer.fault = answer.fault or (f"in a batch of {len(batch)} requests: {fault}" if fault else "")
        if is_alone:
            first.fault = first.fault or batch[-1].fault


def _batches(answers: Sequence[Answer], config: ServedConfig) -> Iterator[list[Answer]]:
    """Requests that a server merges: of shapes that it merges, with no more items than a batch may have."""
    alike: dict[object, list[Answer]] = {}
    for answer in answers:
        inputs = answer.request.inputs
        shapes = frozenset((tensor.name, () if config.ragged else tensor.shape[1:]) for tensor in inputs)
        alike.setdefault(shapes, []).append(answer)
    for group in alike.values():
        batch: list[Answer] = []
        for answer in group:
            if batch and sum(one.request.items for one in (*batch, answer)) > config.largest_batch:
                yield batch
                batch = []
            batch.append(answer)
        yield batch


def _neighbour(models: Models, config: ServedConfig, answer: Answer) -> Answer:
    """A request to merge with one that is alone: of another length, with its items twice, or itself."""
    twice = (
        replace(tensor, shape=(2 * tensor.shape[0], *tensor.shape[1:]), content=bytes(tensor.content) * 2)
        for tensor in answer.request.inputs
    )
    same = replace(answer.request, inputs=tuple(twice))
    for request in filter(None, (answer.longer, same)):
        neighbour = Answer(request)
        if answer.request.items + request.items <= config.largest_batch:
            _send(models, config, neighbour)
            if not neighbour.fault:
                return neighbour
    if neighbour.fault:
        answer.fault = f"with its items twice in one request: {neighbour.fault}"
    return answer


def _is_repeatable(models: Models, config: ServedConfig, answer: Answer) -> bool:
    again = _answered(models, config, answer.request)
    return not responses_difference(_read(answer.responses), _read(again))


def _read(responses: Sequence[Response]) -> tuple[tuple[Tensor, ...], ...]:
    return tuple(tuple(map(readable, response.outputs)) for response in responses)


def _compare(answers: Sequence[Answer], samples: Samples) -> None:
    for answer, sample in zip(answers, samples.samples, strict=True):
        if not answer.fault:
            answer.difference = answer.difference or sample.difference(_read(answer.responses), samples)


def _right(answers: Sequence[Answer], samples: Samples) -> int:
    pairs = zip(answers, samples.samples, strict=True)
    return sum(s.expected is not None and not (a.fault or a.difference) for a, s in pairs)


def _fault(responses: Sequence[Response], config: ServedConfig) -> str:
    error = _error(responses)
    if error is not None:
        return error
    if not config.decoupled and len(responses) != 1:
        return f"expected a single response, got {len(responses)}"
    for response in responses:
        if mismatch := configuration_mismatch(config, tuple(map(readable, response.outputs))):
            return mismatch
    return ""


def _error(responses: Sequence[Response]) -> str | None:
    return next((stated(response.error) for response in responses if response.error is not None), None)


_ARRAYS = (".npy", ".npz")


_Given = tuple[tuple[Request, ...], Samples | None]
"""Requests, and the samples that they are, with expected answers and tolerances; None if they come from elsewhere."""


def read_requests(sources: Sequence[str], config: ServedConfig, model: str, folder: Path) -> _Given:
    """What is given to be sent: files, else the samples of the model; no requests if there are neither."""
    if not sources:
        own = folder / SAMPLES_FILE
        return _from_samples(own, config, model) if os.path.lexists(own) else ((), None)
    if not config.inputs:
        raise _bad(Path(sources[0]), NO_INPUTS, DECLARE_THEM)
    given = [_split(source, config) for source in sources]
    samples = [file for name, file in given if not name and file.suffix == ".json"]
    if samples and len(given) > 1:
        raise _bad(samples[0], "samples hold all inputs of a request, but --input is given more than once", "give one")
    if samples:
        return _from_samples(samples[0], config, model)
    inputs: dict[str, RawTensor] = {}
    for name, file in given:
        for tensor in _tensors(name, file, config):
            if tensor.name in inputs:
                raise _bad(file, f"the input {tensor.name!r} is given twice", "give each input once")
            inputs[tensor.name] = tensor
    return (Request(tuple(inputs.values()), model=model),), None


def check_sources(sources: Sequence[str]) -> None:
    """Refuse files that cannot be read, before a model is loaded, which can take minutes."""
    for source in sources:
        _, _, named = source.partition("=")
        file = Path(named) if named and not Path(source).exists() else Path(source)
        try:
            with opened(file):
                pass
        except OSError as error:
            raise _bad(file, f"cannot be read: {error.strerror}", "give a file that you can read") from error


def _split(source: str, config: ServedConfig) -> tuple[str, Path]:
    names = [entry.name for entry in config.inputs]
    name, equals, rest = source.partition("=")
    if equals and name in names:
        return name, Path(rest)
    if equals and not Path(source).exists():
        raise _no_input(Path(source), name, config, "name one of its inputs")
    return "", Path(source)


def _from_samples(file: Path, config: ServedConfig, model: str) -> _Given:
    samples = read_samples(file, config)
    return tuple(_request(sample.inputs, sample.parameters, model) for sample in samples.samples), samples


def _request(inputs: Sequence[Tensor], parameters: Mapping[str, Any], model: str) -> Request:
    flags = SEQUENCE_START * bool(parameters.get("sequence_start"))
    flags |= SEQUENCE_END * bool(parameters.get("sequence_end"))
    return Request(tuple(map(raw, inputs)), correlation_id=parameters.get("sequence_id", 0), flags=flags, model=model)


def _tensors(name: str, file: Path, config: ServedConfig) -> Iterator[RawTensor]:
    known = {entry.name: entry for entry in config.inputs}
    if file.suffix in _ARRAYS:
        yield from _arrays(file, name, config)
        return
    strings = [entry.name for entry in config.inputs if entry.datatype == "BYTES" and name in ("", entry.name)]
    if not strings:
        which = f"the input {name!r} is" if name else "the model has"
        raise _bad(file, f"{which} no input of strings, which files can be sent to", "give .json, .npy or .npz")
    if len(strings) > 1:
        raise _bad(file, f"the model has {len(strings)} inputs of strings", "say which one: INPUT=FILE")
    try:
        content = read_bytes(file, most=MOST_BYTES)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise _bad(file, f"cannot be read: {reason}", "give a file that you can read") from error
    shape = tuple(1 if size < 0 else size for size in known[strings[0]].dims)
    yield RawTensor(strings[0], "BYTES", shape, encode("BYTES", (content,)))


def _arrays(file: Path, name: str, config: ServedConfig) -> Iterator[RawTensor]:
    inputs = {entry.name: entry for entry in config.inputs}
    arrays = read_arrays(file)
    one = len(arrays) == 1
    for own, array in arrays.items():
        target = (name if one else "") or own or (config.inputs[0].name if len(config.inputs) == 1 else "")
        if target not in inputs:
            raise _no_input(file, target, config, "say which: INPUT=FILE" if one else "name the arrays after inputs")
        yield from_array(target, array, inputs[target].datatype)


def _no_input(file: Path, name: str, config: ServedConfig, hint: str) -> InputError:
    names = ", ".join(entry.name for entry in config.inputs)
    reason = f"the model has no input {name!r}, only {names}" if name else f"the model has the inputs {names}"
    return _bad(file, reason, hint)


def _bad(file: Path, reason: str, hint: str) -> InputError:
    return InputError("bad-input", reason, hint, str(file))
