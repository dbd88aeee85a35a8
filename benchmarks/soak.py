"""Runs our stub for a long time with many requests and many loads, and checks that nothing grows or fails.

    python benchmarks/soak.py [--requests 1000000] [--cycles 10000] [--seed 1] [--no-auto-complete]

Eight clients send requests of 16 B to 1 MB and BYTES to two models. Then models are loaded, sent a request and unloaded
in parallel, many times. Give 0 to skip a part. Prints the memory, descriptors, threads and regions in use at the start,
after a warm-up and at the end, and exits with 1 if the end exceeds the warm-up.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import urlsplit

from bench import processes
from bench.load import Load, LoadError, infer_request
from bench.preparation import Preparation, prepare

from envpack.server import procfs
from envpack.server.interface import Process
from envpack.server.kserve import Client, RequestError
from envpack.server.launch import find_server
from envpack.server.process import ProcessRuntime, ProcessServer
from envpack.server.tensors import Tensor
from envpack.verification.stub_processes import stub_processes

CONFIG = """\
max_batch_size: 0
input [ {{ name: "IN" data_type: {dtype} dims: [ -1 ] }} ]
output [ {{ name: "OUT" data_type: {dtype} dims: [ -1 ] }}, {{ name: "FREE" data_type: TYPE_INT64 dims: [ 1 ] }} ]
"""
NUMBERS, TEXTS = "numbers", "texts"
CLIENTS = 8
PARALLEL = 40  # models that are loaded and unloaded at the same time
WARM_UP = 0.05  # fraction of all requests or cycles
LEAST_REQUESTS = 5000  # requests after which the region no longer grows
REPORTS = 20
LOAD_SECONDS = 120
SETTLE_SECONDS = 15
REGION_PREFIX = "shm-region-prefix-name="
PROBE = {
    NUMBERS: Tensor("IN", "UINT8", (4,), (1, 2, 3, 4)),
    TEXTS: Tensor("IN", "BYTES", (2,), (b"a", b"bc")),
}
# Bytes that each figure may grow after the warm-up: an allocator keeps some pages.
MARGINS = {"rss": 4 << 20, "pss": 4 << 20}


class GrownError(Exception):
    """A figure is larger at the end than after the warm-up."""


@dataclass(frozen=True)
class Site:
    """The running server, its repository, and the parts of its models."""

    server: ProcessServer
    client: Client
    repository: Path
    preparation: Preparation
    seed: int

    @property
    def port(self) -> int:
        return urlsplit(self.server.url).port or 0

    def stub(self, model: str) -> Process:
        """The process that runs the only instance of a model."""
        (process,) = stub_processes(self.server, model)
        return process

    def place(self, name: str, dtype: str) -> None:
        self.preparation.place(self.repository / name, "region", CONFIG.format(dtype=dtype), self.preparation.stub)

    def probe(self, model: str, tensor: Tensor) -> int:
        """Free bytes of the model's region while it serves a fixed request."""
        outputs = {output.name: output for output in self.client.infer(model, [tensor])}
        if outputs["OUT"].data != tensor.data:
            raise LoadError(f"{model} returned {outputs['OUT'].data}")
        return int(outputs["FREE"].data[0])


Snapshot = dict[str, int]


def of_stub(site: Site, model: str) -> Snapshot:
    """Resources of the only instance of a model: memory and region in bytes, threads and descriptors."""
    free = site.probe(model, PROBE[model])
    stub = site.stub(model)
    region = (Path("/dev/shm") / stub.arguments[2]).stat().st_size
    usage = asdict(processes.figures(stub.pid))
    return {**usage, "region": region, "region used": region - free}


def of_server(site: Site) -> Snapshot:
    """Resources of the server when no model is loaded, except its memory, which does not depend on the stub."""
    (process,) = (child for child in procfs.children_of(os.getpid()) if "tritonserver" in child.arguments[0])
    server = processes.figures(process.pid)
    prefixes = {argument.partition(REGION_PREFIX)[2] for argument in process.arguments if REGION_PREFIX in argument}
    regions = sum(1 for prefix in prefixes for _ in Path("/dev/shm").glob(prefix + "*"))
    children = len(site.server.children())
    return {"children": children, "regions": regions, "descriptors": server.descriptors, "threads": server.threads}


def report(name: str, when: str, snapshot: Snapshot) -> None:
    print(f"  {name:8} {when:14} " + "  ".join(f"{key} {value}" for key, value in snapshot.items()), flush=True)


def compare(name: str, warm: Snapshot, end: Snapshot) -> None:
    grown = [f"{key} {warm[key]} → {end[key]}" for key in warm if end[key] > warm[key] + MARGINS.get(key, 0)]
    if grown:
        raise GrownError(f"{name}: {', '.join(grown)}")


def mixed_requests(seed: int) -> Iterator[bytes]:
    """An endless mix of requests: each power of two from 16 B to 1 MB, and BYTES of 1 to 2048 elements."""
    numbers = [infer_request(NUMBERS, {"IN": ("UINT8", (size,), bytes(size))}) for size in (2**i for i in range(4, 21))]
    texts = [infer_request(TEXTS, {"IN": ("BYTES", (n,), _elements(n))}) for n in (2**i for i in range(12))]
    choice = random.Random(seed)
    requests = numbers + texts
    while True:
        choice.shuffle(requests)
        yield from requests


def _elements(count: int) -> bytes:
    elements = (b"x" * (i % 50) for i in range(count))
    return b"".join(struct.pack("<I", len(element)) + element for element in elements)


def parts(total: int, least: int) -> list[int]:
    """Number of requests or cycles of the warm-up, then of each part that ends with a report."""
    warm = min(total, max(least, int(total * WARM_UP)))
    size = max(least, -(-(total - warm) // REPORTS))
    return [warm, *(min(size, total - done) for done in range(warm, total, size))]


def soak_requests(site: Site, total: int) -> None:
    for name, dtype in ((NUMBERS, "TYPE_UINT8"), (TEXTS, "TYPE_STRING")):
        site.place(name, dtype)
        site.client.load(name, timeout=LOAD_SECONDS)
        report(name, "start", of_stub(site, name))
    requests = mixed_requests(site.seed)
    warm_up, *rest = parts(total, LEAST_REQUESTS)
    with Load(site.port, CLIENTS) as load:
        load.run(itertools.islice(requests, warm_up))
        warm = {name: of_stub(site, name) for name in PROBE}
        for name, snapshot in warm.items():
            report(name, f"{warm_up}", snapshot)
        done = warm_up
        for size in rest:
            outcome = load.run(itertools.islice(requests, size))
            done += size
            for name in PROBE:
                report(name, f"{done}", of_stub(site, name))
            print(f"  {outcome.per_second:.0f} requests/s, p99 {outcome.quantile(0.99) * 1e3:.1f} ms", flush=True)
    for name, snapshot in warm.items():
        compare(name, snapshot, of_stub(site, name))
        site.client.unload(name)
    settled(site, {"children": 0})


def soak_cycles(site: Site, total: int) -> None:
    models = [f"cycle{number}" for number in range(min(PARALLEL, total))]
    for name in models:
        site.place(name, "TYPE_UINT8")
    report("server", "start", of_server(site))
    warm_up, *rest = parts(total, 2 * PARALLEL)
    with ThreadPoolExecutor(len(models)) as pool:
        warm, done = cycles(site, pool, models, warm_up), warm_up
        report("server", f"{done}", warm)
        end = warm
        for size in rest:
            started = time.perf_counter()
            end = cycles(site, pool, models, size, warm)
            done += size
            report("server", f"{done}", end)
            print(f"  {size / (time.perf_counter() - started):.1f} cycles/s", flush=True)
    compare("server", warm, end)


def cycles(
    site: Site, pool: ThreadPoolExecutor, models: list[str], count: int, limit: Snapshot | None = None
) -> Snapshot:
    """Load, request and unload models ``count`` times in all; returns the resources of the server afterwards."""
    shares = [count // len(models) + (i < count % len(models)) for i in range(len(models))]
    list(pool.map(lambda name, share: [cycle(site, name) for _ in range(share)], models, shares))
    return settled(site, limit or {"children": 0, "regions": 0})


def cycle(site: Site, name: str) -> None:
    site.client.load(name, timeout=LOAD_SECONDS)
    site.probe(name, PROBE[NUMBERS])
    site.client.unload(name)
    wait_for(
        lambda: not any(entry.name == name and entry.state in ("READY", "UNLOADING") for entry in site.client.index())
    )


def settled(site: Site, limit: Snapshot) -> Snapshot:
    """Wait until the resources of the server are within a limit or `SETTLE_SECONDS` pass; returns them."""
    wait_for(lambda: all(of_server(site)[key] <= value for key, value in limit.items()))
    return of_server(site)


def wait_for(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + SETTLE_SECONDS
    while not condition() and time.monotonic() < until:
        time.sleep(0.05)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=1_000_000)
    parser.add_argument("--cycles", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--no-auto-complete", action="store_true", help="one process for each load instead of two")
    options = parser.parse_args()
    arguments = ("--log-verbose=0", *(("--disable-auto-complete-config",) if options.no_auto_complete else ()))
    with tempfile.TemporaryDirectory(prefix="envpack-soak-") as folder:
        repository = Path(folder)
        preparation = prepare()
        with ProcessRuntime(find_server(), arguments=arguments).start(repository) as server:
            site = Site(server, Client(server.url, timeout=LOAD_SECONDS), repository, preparation, options.seed)
            try:
                if options.requests:
                    soak_requests(site, options.requests)
                if options.cycles:
                    soak_cycles(site, options.cycles)
            except (GrownError, LoadError, RequestError) as error:
                print(f"VERDICT: no – {error}")
                return 1
    print(f"VERDICT: yes – {options.requests} requests and {options.cycles} cycles, nothing has grown")
    return 0


if __name__ == "__main__":
    sys.exit(main())
