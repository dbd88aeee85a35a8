"""Defines the workloads of the stubs, and measures them at the client and with the server's statistics."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable
from dataclasses import dataclass

from bench.load import Load, infer_request, stream_request
from bench.processes import main_thread_seconds
from envpack.server.kserve import Client

_ECHO = """\
max_batch_size: {batch}
input [ {{ name: "IN" data_type: {dtype} dims: {dims} }} ]
output [ {{ name: "OUT" data_type: {dtype} dims: {dims} }} ]
{more}"""
_WARM_UP = 0.2  # duration of the warm-up as a fraction of the run


@dataclass(frozen=True)
class ModelKind:
    """A model that is served once per variant: its file, and its configuration, where ``@VARIANT@`` is replaced."""

    code: str
    config: str


def _echo(dtype: str, dims: str, *, code: str = "echo", batch: int = 0, more: str = "") -> ModelKind:
    return ModelKind(code, _ECHO.format(dtype=dtype, dims=dims, batch=batch, more=more))


_TARGET = 'parameters: { key: "target" value: { string_value: "echo_@VARIANT@" } }'
KINDS = {
    "echo": _echo("TYPE_FP32", "[ -1, -1, -1, -1 ]"),
    "batched": _echo("TYPE_FP32", "[ -1 ]", batch=8, more="dynamic_batching { }"),
    "bytes": _echo("TYPE_STRING", "[ -1 ]"),
    "bls": _echo("TYPE_FP32", "[ -1, -1, -1, -1 ]", code="bls", more=_TARGET),
    "in_place": _echo("TYPE_FP32", "[ -1, -1, -1, -1 ]", code="in_place"),
    "stream": _echo("TYPE_INT32", "[ 1 ]", code="stream", more="model_transaction_policy { decoupled: true }"),
}


@dataclass(frozen=True)
class Workload:
    """Equal requests to one kind of model, from several clients at once."""

    name: str
    kind: str
    concurrency: int
    request: Callable[[str], bytes]  # returns the request for a model, by its name


def _floats(*shape: int) -> Callable[[str], bytes]:
    count = 1
    for size in shape:
        count *= size
    return lambda model: infer_request(model, {"IN": ("FP32", shape, bytes(4 * count))})


def _texts(count: int) -> Callable[[str], bytes]:
    elements = (f"element number {i}".encode() for i in range(count))
    raw = b"".join(struct.pack("<I", len(element)) + element for element in elements)
    return lambda model: infer_request(model, {"IN": ("BYTES", (count,), raw)})


def _responses(count: int) -> Callable[[str], bytes]:
    return lambda model: stream_request(model, {"IN": count})


_SHAPES = (
    ("16 B", "echo", (1, 8), _floats(1, 1, 1, 4)),
    ("4 KB", "echo", (1, 8), _floats(1, 1, 1, 1024)),
    ("600 KB", "echo", (1, 8), _floats(1, 3, 224, 224)),
    ("16 MB", "echo", (1, 8), _floats(1, 4, 1024, 1024)),
    ("in place 600 KB", "in_place", (1, 8), _floats(1, 3, 224, 224)),
    ("in place 16 MB", "in_place", (1, 8), _floats(1, 4, 1024, 1024)),
    ("4 KB batched", "batched", (16,), _floats(1, 1024)),
    ("BYTES 1000", "bytes", (1, 8), _texts(1000)),
    ("BLS 16 B", "bls", (1, 8), _floats(1, 1, 1, 4)),
    ("decoupled 1000", "stream", (1, 8), _responses(1000)),
)
WORKLOADS = tuple(
    Workload(f"{name} x{concurrency}", kind, concurrency, request)
    for name, kind, concurrencies, request in _SHAPES
    for concurrency in concurrencies
)


@dataclass(frozen=True)
class Run:
    """One run: requests per second, and seconds per request at the client and in the server."""

    per_second: float
    p50: float
    p99: float
    server: float  # input, inference and output; the server itself does the first and the last
    inference: float  # from the request to the stub until its response
    cpu: float  # processor seconds of the stub's main thread


def run(workload: Workload, model: str, client: Client, port: int, seconds: float, stub: int) -> Run:
    """Send requests to a model for ``seconds`` seconds, after a short warm-up that is not counted.

    Args:
        workload: the requests.
        model: name of the model.
        client: client of the server.
        port: the server's HTTP port.
        seconds: duration.
        stub: process id of the model's stub.

    """
    requests = itertools.repeat(workload.request(model))
    with Load(port, workload.concurrency) as load:
        load.run(requests, seconds * _WARM_UP)
        before, cpu_before = _statistics(client, model), main_thread_seconds(stub)
        outcome = load.run(requests, seconds)
        after, cpu = _statistics(client, model), main_thread_seconds(stub) - cpu_before
    count = after[0] - before[0]
    server, inference = ((after[i] - before[i]) / count / 1e9 if count else float("nan") for i in (1, 2))
    cpu_per_request = cpu / count if count else float("nan")
    return Run(outcome.per_second, outcome.quantile(0.5), outcome.quantile(0.99), server, inference, cpu_per_request)


def _statistics(client: Client, model: str) -> tuple[int, int, int]:
    """Number of completed requests; nanoseconds of input, inference and output; nanoseconds of inference alone."""
    statistics = client.statistics(model)["model_stats"][0]["inference_stats"]
    parts = [statistics[part] for part in ("compute_input", "compute_infer", "compute_output")]
    return int(parts[1]["count"]), sum(int(part["ns"]) for part in parts), int(parts[1]["ns"])
