"""Compares our stub with the release's own, in alternating runs with the same server, models and client.

    python benchmarks/stub_ab.py [--only "16 B"] [--repeat 5] [--seconds 1] [--against STUB] [--self] [--json FILE]

The repository contains every model twice: with our stub beside it, and without, so that the server starts its own stub.
Both run in the same execution environment with NumPy 1.26. Prints medians, and ratios above 1 where ours is better. For
requests the table shows figures of the client (throughput, median and 99th percentile of latency), two figures of the
server from the model's statistics (the sum of input, inference and output, and inference alone, because the server
itself does the other two), and the processor time of the stub's main thread for each request. "in place" computes its
output with Tensor.empty() if the stub offers it. --against replaces the release's own stub by another executable, such
as an earlier version of ours. --self compares our stub with itself: a difference from 1 is noise.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from bench import native, processes
from bench.load import LoadError
from bench.preparation import Preparation, prepare
from bench.workloads import KINDS, WORKLOADS, Workload, run

from envpack.server.kserve import Client
from envpack.server.launch import find_server
from envpack.server.process import ProcessRuntime, ProcessServer
from envpack.verification.stub_processes import instances, stub_processes

VARIANTS = ("ours", "release")
LOADED = "load"  # name of the model that is loaded and unloaded
IDLE_SECONDS = 5
LOAD_SECONDS = 60
_QUIET = ("--log-verbose=0",)  # logging each step of a request would dominate the measurement


@dataclass(frozen=True)
class Figure:
    """A measured quantity, its unit, and whether a larger value is better."""

    name: str
    unit: str
    more_is_better: bool = False


@dataclass
class Row:
    """One figure of one workload, for both variants."""

    workload: str
    figure: Figure
    values: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    def median(self, variant: str) -> float:
        return statistics.median(self.values[variant])

    def ratio(self) -> float:
        ours, release = (self.median(variant) for variant in VARIANTS)
        return ours / release if self.figure.more_is_better else release / ours

    def as_dict(self) -> dict[str, object]:
        facts = {"workload": self.workload, "figure": self.figure.name, "unit": self.figure.unit}
        medians = {variant: self.median(variant) for variant in VARIANTS}
        return {**facts, **medians, "ratio": self.ratio(), "runs": dict(self.values)}


class Table:
    """All rows, in the order in which they were added."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, str], Row] = {}
        self.not_served: dict[str, str] = {}

    def add(self, workload: str, variant: str, figures: dict[Figure, float]) -> None:
        for figure, value in figures.items():
            row = self.rows.setdefault((workload, figure.name), Row(workload, figure))
            row.values[variant].append(value)

    def complete(self) -> list[Row]:
        return [row for row in self.rows.values() if all(row.values[variant] for variant in VARIANTS)]


@dataclass(frozen=True)
class Bench:
    """The running server, its models, and the settings of the runs."""

    server: ProcessServer
    client: Client
    preparation: Preparation
    repository: Path
    other: Path | None  # in place of the release's own stub
    repeat: int
    seconds: float

    @property
    def port(self) -> int:
        return urlsplit(self.server.url).port or 0

    def turns(self) -> Iterator[str]:
        """The variants in alternating order, A B, B A, A B, so that neither is always first."""
        for turn in range(self.repeat):
            yield from VARIANTS[:: 1 if turn % 2 == 0 else -1]

    def stub(self, model: str) -> int:
        """Process id that runs the only instance of a model."""
        (process,) = stub_processes(self.server, model)
        return process.pid

    def all_of(self, model: str) -> tuple[int, ...]:
        """All processes of that instance: ours is a front and a worker."""
        (instance,) = instances(self.server, model)
        return tuple({instance.stub.pid, instance.worker.pid})


def requests(bench: Bench, table: Table, workload: Workload) -> None:
    models = {variant: f"{workload.kind}_{variant}" for variant in VARIANTS}
    for variant in bench.turns():
        if workload.name in table.not_served:
            return
        try:
            stub = bench.stub(models[variant])
            result = run(workload, models[variant], bench.client, bench.port, bench.seconds, stub)
        except LoadError as error:
            table.not_served[workload.name] = f"{models[variant]}: {str(error)[:120]}"
            return
        figures = {
            Figure("throughput", "1/s", more_is_better=True): result.per_second,
            Figure("client p50", "ms"): result.p50 * 1e3,
            Figure("client p99", "ms"): result.p99 * 1e3,
            Figure("server", "ms"): result.server * 1e3,
            Figure("server, inference", "ms"): result.inference * 1e3,
            Figure("stub, main thread", "us"): result.cpu * 1e6,
        }
        table.add(workload.name, variant, figures)


def memory(bench: Bench, table: Table) -> None:
    """Measure the memory of an instance that has served requests and is idle."""
    for variant in VARIANTS:
        model = f"echo_{variant}"
        stub = bench.stub(model)
        run(WORKLOADS[0], model, bench.client, bench.port, 0.1, stub)
        usages = [processes.figures(pid) for pid in bench.all_of(model)]
        rss, pss = sum(usage.rss for usage in usages), sum(usage.pss for usage in usages)
        mib = {Figure("RSS", "MiB"): rss / 2**20, Figure("PSS", "MiB"): pss / 2**20}
        table.add("idle instance", variant, mib)


def idle_cpu(bench: Bench, table: Table) -> None:
    """Measure the processor time of idle instances, both variants at the same time."""
    pids = {variant: bench.all_of(f"echo_{variant}") for variant in VARIANTS}
    for _ in range(bench.repeat):
        before = {variant: _cpu_seconds(each) for variant, each in pids.items()}
        time.sleep(IDLE_SECONDS)
        for variant, each in pids.items():
            spent = (_cpu_seconds(each) - before[variant]) / IDLE_SECONDS
            table.add("idle instance", variant, {Figure("CPU", "us/s"): spent * 1e6})


def _cpu_seconds(pids: tuple[int, ...]) -> float:
    return sum(processes.cpu_seconds(pid) for pid in pids)


def loading(bench: Bench, table: Table) -> None:
    """Measure the time from the load request to READY; some seconds of it are the server's own."""
    for variant in bench.turns():
        model = f"{LOADED}_{variant}"
        started = time.perf_counter()
        bench.client.load(model, timeout=LOAD_SECONDS)
        table.add("load", variant, {Figure("load to READY", "ms"): (time.perf_counter() - started) * 1e3})
        bench.client.unload(model)
        _wait_until_gone(bench, model)


def _wait_until_gone(bench: Bench, model: str) -> None:
    until = time.monotonic() + LOAD_SECONDS
    while any(entry.name == model and entry.state == "READY" for entry in bench.client.index()):
        if time.monotonic() > until:
            raise LoadError(f"{model} is not unloaded")
        time.sleep(0.02)
    time.sleep(2)  # the process ends after the state changes, and must not disturb the next load


def starting(bench: Bench, table: Table) -> None:
    """Measure the start of a stub with a small program in place of the server."""
    program = native.build(bench.preparation)
    model = bench.repository / f"echo_{VARIANTS[0]}/1/model.py"
    stubs = dict(zip(VARIANTS, (bench.preparation.stub, bench.other or native.release_stub()), strict=True))
    for variant in bench.turns():
        announced, initialized = native.clock(program, bench.preparation, stubs[variant], model)
        figures = {Figure("first message", "ms"): announced * 1e3, Figure("initialized", "ms"): initialized * 1e3}
        table.add("stub start", variant, figures)


SPECIAL: dict[str, Callable[[Bench, Table], None]] = {
    "idle instance: memory": memory,
    "idle instance: CPU": idle_cpu,
    "stub start": starting,
    "load": loading,
}


def fill(repository: Path, preparation: Preparation, other: Path | None) -> None:
    for variant, stub in zip(VARIANTS, (preparation.stub, other), strict=True):
        for name, kind in {**KINDS, LOADED: KINDS["echo"]}.items():
            config = kind.config.replace("@VARIANT@", variant)
            preparation.place(repository / f"{name}_{variant}", kind.code, config, stub)


def measure(bench: Bench, chosen: list[str]) -> Table:
    table = Table()
    kinds = {workload.kind for workload in WORKLOADS if workload.name in chosen}
    for kind in sorted(kinds | {"echo"}):
        for variant in VARIANTS:
            bench.client.load(f"{kind}_{variant}", timeout=LOAD_SECONDS)
    for name, special in SPECIAL.items():
        if name in chosen:
            _announce(name)
            special(bench, table)
    for workload in WORKLOADS:
        if workload.name in chosen:
            _announce(workload.name)
            requests(bench, table, workload)
    return table


def _announce(name: str) -> None:
    print(f"  {name} …", file=sys.stderr, flush=True)


def show(table: Table) -> None:
    line = "{:22} {:20} {:>12} {:>12}  {:5} {:>6}"
    print(line.format("", "", *VARIANTS, "", "ratio"))
    for row in table.complete():
        medians = (f"{row.median(variant):.4g}" for variant in VARIANTS)
        ratio = "n/a" if math.isnan(row.ratio()) else f"{row.ratio():.2f}"
        print(line.format(row.workload, row.figure.name, *medians, row.figure.unit, ratio))
    for name, reason in table.not_served.items():
        print(f"{name:22} not served: {reason}")


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--only", action="append", default=[], metavar="NAME", help="only workloads whose name contains NAME"
    )
    parser.add_argument("--repeat", type=int, default=5, help="runs of each variant")
    parser.add_argument("--seconds", type=float, default=1.0, help="length of a run")
    other = parser.add_mutually_exclusive_group()
    other.add_argument("--against", type=Path, metavar="STUB", help="compare with this stub, not the release's own")
    other.add_argument("--self", action="store_true", dest="against_itself", help="compare our stub with itself")
    parser.add_argument("--json", type=Path, metavar="FILE")
    return parser.parse_args()


def main() -> None:
    options = parse_options()
    names = [*SPECIAL, *(workload.name for workload in WORKLOADS)]
    chosen = [name for name in names if not options.only or any(part in name for part in options.only)]
    preparation = prepare()
    with tempfile.TemporaryDirectory(prefix="envpack-benchmark-") as folder:
        repository = Path(folder)
        other = preparation.stub if options.against_itself else options.against
        fill(repository, preparation, other)
        with ProcessRuntime(find_server(), arguments=_QUIET).start(repository) as server:
            client = Client(server.url)
            bench = Bench(server, client, preparation, repository, other, options.repeat, options.seconds)
            table = measure(bench, chosen)
    show(table)
    if options.json:
        options.json.write_text(json.dumps([row.as_dict() for row in table.complete()], indent=1))


if __name__ == "__main__":
    main()
