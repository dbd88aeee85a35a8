"""Checks of the responses of a loaded model."""

from __future__ import annotations

import math
import statistics
import time

from envpack.server import (
    BINARY_ONLY,
    FLOATING,
    Client,
    RequestError,
    ServedConfig,
    Tensor,
    Tolerance,
    difference,
    needs_binary,
    stream,
)
from envpack.verification.generated import SmokeRequest
from envpack.verification.samples import Sample, Samples
from envpack.verification.verdict import Check, Latency, SampleCount, failed, passed, skipped, unchecked, warning

_JSON_TOLERANCE = Tolerance(rtol=1e-6, atol=1e-9)
_SHOWN_FAILURES = 3
_LATENCY_SECONDS = 1.0
_MATCH_CONFIGURATION = "return what config.pbtxt declares, or correct config.pbtxt"


def check_smoke(client: Client, model: str, config: ServedConfig, requests: tuple[SmokeRequest, ...]) -> list[Check]:
    """Check that every request succeeds, and that the outputs have the declared names and types.

    Further checks warn of what a server sends all the same: an output of another shape than the configuration declares,
    and one without a finite number.
    """
    shown, shape, infinite = "", "", ""
    for request in requests:
        outputs = client.infer(model, request.inputs, binary=True, parameters=request.parameters)
        mismatch = configuration_mismatch(config, outputs)
        if mismatch:
            return [failed("infer", f"sent {request.description}: {mismatch}", _MATCH_CONFIGURATION)]
        shown = shown or ", ".join(f"{t.name} {t.datatype}{list(t.shape)}" for t in outputs)
        shape = shape or shape_mismatch(config, outputs)
        infinite = infinite or next((tensor.name for tensor in outputs if _is_infinite(tensor)), "")
    checks = [passed("infer", f"returned {shown}; sent {', '.join(request.description for request in requests)}")]
    if shape:
        evidence = f"{shape}: the server sends it, and an ensemble refuses it as an input of its next step"
        checks.append(warning("shape", evidence, _MATCH_CONFIGURATION))
    if infinite:
        evidence = f"no element of {infinite} is a finite number: all are NaN or infinite"
        fix = "look for a division by zero, or provide samples that fit the model"
        checks.append(warning("values", evidence, fix))
    return checks


def _is_infinite(tensor: Tensor) -> bool:
    if tensor.datatype not in FLOATING or not tensor.data:
        return False
    return not any(math.isfinite(float(value)) for value in tensor.data)


def check_stream(client: Client, model: str, config: ServedConfig, request: SmokeRequest) -> Check:
    """Check the responses of a decoupled model over ``generate_stream``; any number of responses is correct."""
    binary_only = {tensor.datatype for tensor in request.inputs} & BINARY_ONLY
    if binary_only:
        reason = f"not sent: requests to a decoupled model are JSON, which cannot represent {sorted(binary_only)[0]}"
        return unchecked("infer", reason, "send it a request with a client of gRPC")
    responses = stream(client, model, request.inputs)
    names = {declared.name for declared in config.outputs}
    for response in responses:
        missing = names - set(response)
        if missing:
            evidence = f"the output {sorted(missing)[0]} is missing in a streamed response"
            return failed("infer", evidence, _MATCH_CONFIGURATION)
        empty = [name for name in names if response[name] == []]
        if empty:
            return failed("infer", f"the output {empty[0]} is empty in a streamed response", _MATCH_CONFIGURATION)
    count = f"{len(responses)} response{'' if len(responses) == 1 else 's'}"
    return passed("infer", f"streamed {count}; sent {request.description}")


def check_formats(client: Client, model: str, config: ServedConfig, request: SmokeRequest) -> Check | None:
    """Check that JSON and binary requests have equal responses; None if JSON cannot represent the tensors."""
    types = {entry.datatype for entry in (*config.inputs, *config.outputs)}
    if types & BINARY_ONLY or any(needs_binary(tensor) for tensor in request.inputs):
        return None
    by_binary = client.infer(model, request.inputs, binary=True, parameters=request.parameters)
    if any(needs_binary(tensor) for tensor in by_binary):
        return None
    by_json = client.infer(model, request.inputs, binary=False, parameters=request.parameters)
    unequal = first_difference(by_binary, by_json, _JSON_TOLERANCE)
    if not unequal:
        return passed("formats", "JSON and binary requests have equal responses")
    repeated = client.infer(model, request.inputs, binary=True, parameters=request.parameters)
    if first_difference(by_binary, repeated, _JSON_TOLERANCE):
        return skipped("formats", "not compared: two equal requests have different responses")
    return failed("formats", f"as JSON, {unequal}", "the stub mishandles tensors; use envpack's stub")


def check_samples(client: Client, model: str, samples: Samples) -> tuple[Check, SampleCount | None]:
    """Send every sample and compare the outputs that have expected values.

    Returns:
        The check, and the number of matching samples, None if no sample has expected values.

    """
    right = 0
    wrong = []
    for index, sample in enumerate(samples.samples):
        try:
            outputs = client.infer(model, sample.inputs, binary=True, parameters=sample.parameters)
        except RequestError as error:
            if error.timed_out or not error.status:  # so would every other sample
                raise
            wrong.append(f"{index}: {error.message.splitlines()[0]}")
            continue
        mismatch = _sample_mismatch(sample, outputs, samples)
        right += not mismatch
        wrong += [f"{index}: {mismatch}"] if mismatch else []
    sent = len(samples.samples)
    count = SampleCount(right, sent, samples.noun, needed=math.ceil(round(samples.minimum_match * sent, 9)))
    reported = count if any(sample.expected for sample in samples.samples) else None
    if right >= count.needed:
        return passed("expected", str(count)), reported
    shown = "; ".join(wrong[:_SHOWN_FAILURES])
    fix = "correct the model, or the expected outputs of the samples"
    return failed("expected", f"{count} ({shown})", fix), reported


def measure_latency(client: Client, model: str, request: SmokeRequest, count: int) -> Latency | None:
    """Time up to ``count`` requests, one after the other, for at most one second; None if ``count`` is 0."""
    seconds: list[float] = []
    until = time.monotonic() + _LATENCY_SECONDS
    while len(seconds) < count and time.monotonic() < until:
        started = time.perf_counter()
        client.infer(model, request.inputs, binary=True, parameters=request.parameters)
        seconds.append(time.perf_counter() - started)
    if not seconds:
        return None
    ordered = sorted(seconds)
    p95 = ordered[min(len(ordered) - 1, len(ordered) * 95 // 100)]
    return Latency(len(seconds), statistics.median(ordered), p95)


def _sample_mismatch(sample: Sample, outputs: tuple[Tensor, ...], samples: Samples) -> str:
    """The first output of a sample that differs from its expected value, or ``""``."""
    by_name = {tensor.name: tensor for tensor in outputs}
    for expected in sample.expected:
        actual = by_name.get(expected.name)
        unequal = difference(expected, actual, samples.tolerance(expected.name)) if actual else "is missing"
        if unequal:
            return f"{expected.name} {unequal}"
    return ""


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
        if len(tensor.data) != tensor.size:
            return f"the output {declared.name} has {len(tensor.data)} elements, and the shape {list(tensor.shape)}"
    return "" if outputs else "there are no outputs"


def shape_mismatch(config: ServedConfig, outputs: tuple[Tensor, ...]) -> str:
    """Which output of a response has another shape than a configuration declares, ``""`` if none has."""
    by_name = {tensor.name: tensor for tensor in outputs}
    for declared in config.outputs:
        found = by_name.get(declared.name)
        if found and not _fits(found.shape, declared.dims):
            return f"the output {declared.name} has the shape {list(found.shape)}, not {list(declared.dims)}"
    return ""


def _fits(shape: tuple[int, ...], dims: tuple[int, ...]) -> bool:
    return len(shape) == len(dims) and all(dim in (-1, actual) for dim, actual in zip(dims, shape, strict=True))


def first_difference(expected: tuple[Tensor, ...], found: tuple[Tensor, ...], tolerance: Tolerance) -> str:
    """The first difference between two answers, ``""`` if they are equal; further tensors do not count."""
    by_name = {tensor.name: tensor for tensor in found}
    for tensor in expected:
        other = by_name.get(tensor.name)
        unequal = difference(tensor, other, tolerance) if other else "is missing"
        if unequal:
            return f"{tensor.name} {unequal}"
    return ""
