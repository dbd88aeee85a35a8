"""Compares a stub that supports every Triton release with a stub for one release, in alternating rounds.

    python benchmarks/stub_wires.py [--repeat 40] [--requests 3000]

The first table shows the time from the start of the process to its first message and to the response to initialize, and
the time of an echoed request. The peer of the native tests acts as the server, and a variable names the release. The
second table shows how long a stub takes to detect the release from a running server's library, the slowest method, from
the start of the process to its end. A stub exits right after it selected the ABI epoch if the shared-memory region does
not exist, and right before if it has no arguments.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

from bench import native
from bench.preparation import MODELS, prepare

from envpack.releases import DEFAULT_RELEASE, find_release
from envpack.server import find_server
from envpack.server.process import ProcessRuntime
from envpack.stub import build_stub, target_from_prefix

VARIANTS = ("all releases", "one release")


def turns(repeat: int, measure: Callable[[str], dict[str, float]]) -> dict[str, dict[str, list[float]]]:
    """Measure both variants, in alternating order; returns the figures by name and variant."""
    found: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for number in range(repeat):
        for variant in VARIANTS if number % 2 else reversed(VARIANTS):
            for name, value in measure(variant).items():
                found[name][variant].append(value)
    return found


def show(title: str, found: dict[str, dict[str, list[float]]]) -> None:
    print(f"{title:28} {VARIANTS[0]:>14} {VARIANTS[1]:>14} {'difference':>12} {'ratio':>7}")
    for name, values in found.items():
        every, single = (statistics.median(values[variant]) for variant in VARIANTS)
        print(
            f"{name:28} {every * 1e3:11.3f} ms {single * 1e3:11.3f} ms {(every - single) * 1e3:9.3f} ms"
            f" {every / single:7.3f}"
        )


def seconds_of(command: list[str]) -> float:
    """Duration of a stub that exits with status 1."""
    started = time.perf_counter()
    done = subprocess.run(command, env={}, stderr=subprocess.DEVNULL, check=False)
    duration = time.perf_counter() - started
    if done.returncode != 1:
        message = f"{command[0]} ended with {done.returncode}"
        raise RuntimeError(message)
    return duration


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=40, help="rounds; default: 40")
    parser.add_argument("--requests", type=int, default=3000, help="requests of each round; default: 3000")
    options = parser.parse_args()
    preparation = prepare()
    single = build_stub(target_from_prefix(preparation.environment), [find_release(DEFAULT_RELEASE)])
    stubs = dict(zip(VARIANTS, (preparation.stub, single.path), strict=True))
    program = native.build(preparation)
    print(", ".join(f"{variant}: {stub.stat().st_size / 1e6:.2f} MB" for variant, stub in stubs.items()))

    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "1/model.py"
        model.parent.mkdir()
        model.write_bytes((MODELS / "echo.py").read_bytes())

        def start_and_request(variant: str) -> dict[str, float]:
            figures = native.clock(program, preparation, stubs[variant], model, requests=options.requests, size=16)
            return dict(zip(("first message", "initialized", "request of 16 B"), figures, strict=True))

        show("start and request", turns(options.repeat, start_and_request))

        repository = Path(folder) / "empty"
        repository.mkdir()
        installation = find_server()
        with ProcessRuntime(installation).start(repository) as server:

            def detection(variant: str) -> dict[str, float]:
                stub, backend = str(stubs[variant]), str(installation.backends / "python")
                region = f"envpack_none_{os.getpid()}_00000000-0000-4000-8000-000000000000"
                command = [
                    stub,
                    str(model),
                    region,
                    "1048576",
                    "1048576",
                    str(server.pid),
                    backend,
                    "336",
                    "m_0",
                    "DEFAULT",
                ]
                return {"without detection": seconds_of([stub]), "with detection": seconds_of(command)}

            show("detecting the release", turns(options.repeat, detection))
    return 0


if __name__ == "__main__":
    sys.exit(main())
