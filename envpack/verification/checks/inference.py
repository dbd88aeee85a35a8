"""What a loaded model must answer."""

from __future__ import annotations

import statistics
import time

from envpack.server import BINARY_ONLY, Client, RequestError, ServedConfig, Tensor, Tolerance, difference, needs_binary
from envpack.verification.samples import Samples, SmokeRequest
from envpack.verification.verdict import Check, Latency, SampleCount, failed, passed, skipped

_JSON_TOLERANCE = Tolerance(rtol=1e-6, atol=1e-9)
_SHOWN_FAILURES = 3
_LATENCY_SECONDS = 1.0
_BY_CONFIGURATION = "let the model return what config.pbtxt says, or correct config.pbtxt"


def check_smoke(client: Client, model: str, config: ServedConfig, questions: tuple[SmokeRequest, ...]) -> Check:
    """Whether the model answers every question, and with what its configuration promises."""
    shown = ""
    for question in questions:
        answer = client.infer(model, question.inputs, binary=True, parameters=question.parameters)
        wrong = _broken_promises(config, answer)
        if wrong:
            return failed("infer", f"asked {question.about}: {wrong}", _BY_CONFIGURATION)
        shown = shown or ", ".join(f"{t.name} {t.datatype}{list(t.shape)}" for t in answer)
    return passed("infer", f"answered {shown}; asked {', '.join(question.about for question in questions)}")


def check_stream(client: Client, model: str, config: ServedConfig, question: SmokeRequest) -> Check:
    """Whether a decoupled model answers, over ``generate_stream``; none to many answers are all right."""
    carried = {tensor.datatype for tensor in question.inputs} & BINARY_ONLY
    if carried:
        return skipped("infer", f"a decoupled model is asked in JSON, which cannot carry {sorted(carried)[0]}")
    answers = client.generate_stream(model, question.inputs)
    names = {promised.name for promised in config.outputs}
    for answer in answers:
        missing = names - set(answer)
        if missing:
            return failed(
                "infer", f"the output {sorted(missing)[0]} is missing in a streamed answer", _BY_CONFIGURATION
            )
        empty = [name for name in names if answer[name] == []]
        if empty:
            return failed("infer", f"the output {empty[0]} is empty in a streamed answer", _BY_CONFIGURATION)
    return passed("infer", f"streamed {len(answers)} answers; asked {question.about}")


def check_formats(client: Client, model: str, config: ServedConfig, question: SmokeRequest) -> Check | None:
    """Whether JSON and binary requests get the same answer; None where JSON cannot carry the tensors."""
    types = {entry.datatype for entry in (*config.inputs, *config.outputs)}
    if types & BINARY_ONLY or any(needs_binary(tensor) for tensor in question.inputs):
        return None
    one = client.infer(model, question.inputs, binary=True, parameters=question.parameters)
    if any(needs_binary(tensor) for tensor in one):
        return None
    other = client.infer(model, question.inputs, binary=False, parameters=question.parameters)
    unequal = _first_difference(one, other)
    if not unequal:
        return passed("formats", "JSON and binary requests are answered alike")
    again = client.infer(model, question.inputs, binary=True, parameters=question.parameters)
    if _first_difference(one, again):
        return skipped("formats", "not compared: the model does not answer the same request twice alike")
    return failed("formats", f"as JSON, {unequal}", "the stub mishandles tensors; use envpack's stub")


def check_samples(client: Client, model: str, samples: Samples) -> tuple[Check, SampleCount | None]:
    """Send every sample and compare the outputs for which the user has said what to expect."""
    right = 0
    wrong = []
    for index, sample in enumerate(samples.samples):
        try:
            answers = client.infer(model, sample.inputs, binary=True, parameters=sample.parameters)
        except RequestError as error:
            wrong.append(f"{index}: {error.message.splitlines()[0]}")
            continue
        answer = {tensor.name: tensor for tensor in answers}
        differences = [
            f"{want.name} {unequal}"
            for want in sample.expected
            if (unequal := _unmet(want, answer.get(want.name), samples))
        ]
        right += not differences
        wrong += [f"{index}: {differences[0]}"] if differences else []
    sent = len(samples.samples)
    count = SampleCount(right, sent, samples.noun) if any(s.expected for s in samples.samples) else None
    ok = right >= samples.minimum_match * sent
    sentence = f"{right} {samples.noun} right of {sent} {samples.noun} sent"
    if ok:
        return passed("expected", sentence), count
    shown = "; ".join(wrong[:_SHOWN_FAILURES])
    return failed("expected", f"{sentence} ({shown})", "correct the model, or what the samples expect"), count


def measure_latency(client: Client, model: str, question: SmokeRequest, requests: int) -> Latency | None:
    """Time requests one after the other, for a second at most; None if none was to be made."""
    seconds: list[float] = []
    until = time.monotonic() + _LATENCY_SECONDS
    while len(seconds) < requests and time.monotonic() < until:
        started = time.perf_counter()
        client.infer(model, question.inputs, binary=True, parameters=question.parameters)
        seconds.append(time.perf_counter() - started)
    if not seconds:
        return None
    ordered = sorted(seconds)
    return Latency(len(seconds), statistics.median(ordered), ordered[min(len(ordered) - 1, len(ordered) * 95 // 100)])


def _unmet(want: Tensor, have: Tensor | None, samples: Samples) -> str:
    return difference(want, have, samples.tolerance(want.name)) if have else "is missing"


def _broken_promises(config: ServedConfig, answer: tuple[Tensor, ...]) -> str:
    got = {tensor.name: tensor for tensor in answer}
    for promised in config.outputs:
        tensor = got.get(promised.name)
        if tensor is None:
            # A server drops what the configuration does not name.
            why = f"the answer has {', '.join(got)}" if got else "the model gave none, or one of another name"
            return f"the output {promised.name} is missing: {why}"
        if tensor.datatype != promised.datatype:
            return f"the output {promised.name} is {tensor.datatype}, not {promised.datatype}"
        fits = len(tensor.shape) == len(promised.dims) and all(
            want in (-1, have) for want, have in zip(promised.dims, tensor.shape, strict=True)
        )
        if not fits:
            return f"the output {promised.name} has the shape {list(tensor.shape)}, not {list(promised.dims)}"
        if tensor.size == 0 or len(tensor.data) != tensor.size:
            return f"the output {promised.name} is empty: {len(tensor.data)} elements, shape {list(tensor.shape)}"
    return "" if answer else "there are no outputs"


def _first_difference(one: tuple[Tensor, ...], other: tuple[Tensor, ...]) -> str:
    others = {tensor.name: tensor for tensor in other}
    for tensor in one:
        twin = others.get(tensor.name)
        unequal = difference(tensor, twin, _JSON_TOLERANCE) if twin else "is missing"
        if unequal:
            return f"{tensor.name} {unequal}"
    return ""
