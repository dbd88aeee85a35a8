"""What it costs that one stub speaks to every Triton release: against a stub of one release, in turns.

    python benchmarks/stub_wires.py [--repeat 40] [--requests 3000]

The first table is of the time from the start of the process to its first message and to the answer of initialize, and
of an echoed request, with the native tests' peer as the server; the release is told by a variable. The second is of
finding the release out by a running server's library, the slowest way, from the start of the process to its end: with a
region that does not exist a stub stops right after it has chosen its wire, and without arguments right before.
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
    """Figures of both variants by name; each round begins with the other one."""
    found: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for number in range(repeat):
        for variant in VARIANTS if number % 2 else reversed(VARIANTS):
            for name, value in measure(variant).items():
                found[name][variant].append(value)
    return found


def show(title: str, found: dict[str, dict[str, list[float]]]) -> None:
    print(f"{title:28} {VARIANTS[0]:>14} {VARIANTS[1]:>14} {'difference':>12} {'ratio':>7}")
    for name, values in found.items():
        every, one = (statistics.median(values[variant]) for variant in VARIANTS)
        print(f"{name:28} {every * 1e3:11.3f} ms {one * 1e3:11.3f} ms {(every - one) * 1e3:9.3f} ms {every / one:7.3f}")


def seconds_of(command: list[str]) -> float:
    """How long a stub runs that ends by itself with status 1."""
    started = time.perf_counter()
    done = subprocess.run(command, env={}, stderr=subprocess.DEVNULL, check=False)
    took = time.perf_counter() - started
    if done.returncode != 1:
        message = f"{command[0]} ended with {done.returncode}"
        raise RuntimeError(message)
    return took


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--repeat", type=int, default=40, help="rounds; default: 40")
    options.add_argument("--requests", type=int, default=3000, help="requests of each round; default: 3000")
    given = options.parse_args()
    preparation = prepare()
    one = build_stub(target_from_prefix(preparation.environment), [find_release(DEFAULT_RELEASE)])
    stubs = dict(zip(VARIANTS, (preparation.stub, one.path), strict=True))
    program = native.build(preparation)
    print(", ".join(f"{variant}: {stub.stat().st_size / 1e6:.2f} MB" for variant, stub in stubs.items()))

    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "1/model.py"
        model.parent.mkdir()
        model.write_bytes((MODELS / "echo.py").read_bytes())

        def life(variant: str) -> dict[str, float]:
            figures = native.clock(program, preparation, stubs[variant], model, requests=given.requests, size=16)
            return dict(zip(("first message", "initialized", "request of 16 B"), figures, strict=True))

        show("one life", turns(given.repeat, life))

        repository = Path(folder) / "empty"
        repository.mkdir()
        installation = find_server()
        with ProcessRuntime(installation).start(repository) as server:

            def finding(variant: str) -> dict[str, float]:
                stub, backend = str(stubs[variant]), str(installation.backends / "python")
                region = f"envpack_none_{os.getpid()}_00000000-0000-4000-8000-000000000000"
                told = [
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
                return {"started and ended": seconds_of([stub]), "and the wire was chosen": seconds_of(told)}

            show("finding the release", turns(given.repeat, finding))
    return 0


if __name__ == "__main__":
    sys.exit(main())
