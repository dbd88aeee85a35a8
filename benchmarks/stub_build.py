"""Measures how long stubs take to compile, and how large they are; prints seconds, ratios and goals.

    python benchmarks/stub_build.py [--python 3.8 --python 3.10 …] [--toolchain system --toolchain zig]

Each toolchain starts with an empty cache of stubs, and zig without the C++ runtime that it compiles once. The first
stub is compiled from nothing. The next ones compile only the part that depends on their Python. Then the first stub is
requested again, from the cache. These stubs support every release; a last one supports a single release, to show the
difference. A missed goal is printed, and is not an error.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

RELEASE = "24.10"
FROM_NOTHING = {"system": 60, "zig": 120}
FURTHER, CACHED, SINGLE_RELEASE, ALL_RELEASES = 12, 0.3, 1.2e6, 1.5e6


@dataclass(frozen=True)
class Made:
    """One call of `envpack stub`.

    Attributes:
        seconds: duration of the whole command.
        cores: processor seconds per second; a low value shows that the machine was busy with other work.
        size: bytes of the stub.
    """

    seconds: float
    cores: float
    size: int


def make(folder: Path, toolchain: str, python: str, *more: str) -> Made:
    command = [sys.executable, "-m", "envpack.cli", "stub", "--json", "--quiet", "--toolchain", toolchain]
    # zig's global cache is in the same folder, so it is empty at the start too.
    env = os.environ | {"ENVPACK_CACHE_DIR": str(folder / "cache")}
    before, started = os.times(), time.perf_counter()
    done = subprocess.run(
        [*command, "--python", python, "--output", folder, *more], env=env, stdout=subprocess.PIPE, check=True
    )
    seconds, after = time.perf_counter() - started, os.times()
    cpu_seconds = after.children_user + after.children_system - before.children_user - before.children_system
    return Made(seconds, cpu_seconds / seconds, Path(json.loads(done.stdout)["stub"]).stat().st_size)


def measure(toolchain: str, pythons: list[str]) -> None:
    with tempfile.TemporaryDirectory(prefix="envpack-benchmark-") as name:
        folder = Path(name)
        first = make(folder, toolchain, pythons[0])
        show(toolchain, f"from nothing, Python {pythons[0]}", first, FROM_NOTHING[toolchain])
        further = [make(folder, toolchain, python) for python in pythons[1:]]
        for python, made in zip(pythons[1:], further, strict=True):
            show(toolchain, f"further, Python {python}", made, FURTHER)
        again = [make(folder, toolchain, pythons[0]) for _ in range(5)]
        cached = min(again, key=lambda made: made.seconds)
        show(toolchain, "cached, the best of five", cached, CACHED)
        single = make(folder, toolchain, pythons[0], "--triton", RELEASE)
        show(toolchain, f"for {RELEASE} only", single, None)
    if further:
        middle = sorted(made.seconds for made in further)[len(further) // 2]
        print(
            f"{toolchain:7} from nothing / further: {first.seconds / middle:.1f}, further / cached: "
            f"{middle / cached.seconds:.0f}"
        )
    print(
        f"{toolchain:7} size: every release {first.size / 1e6:.2f} MB (goal {ALL_RELEASES / 1e6:.1f}), {RELEASE} only "
        f"{single.size / 1e6:.2f} MB (goal {SINGLE_RELEASE / 1e6:.1f}), ratio {first.size / single.size:.2f}"
    )


def show(toolchain: str, what: str, made: Made, goal: float | None) -> None:
    suffix = f"   (goal {goal} s)" if goal else ""
    print(f"{toolchain:7} {what:28} {made.seconds:7.2f} s, {made.cores:.1f} cores busy{suffix}", flush=True)


def machine() -> str:
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    return f"{model or platform.machine()}, {len(os.sched_getaffinity(0))} cores, load before: {load}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", action="append", metavar="3.8", help="the first is compiled from nothing")
    parser.add_argument("--toolchain", action="append", choices=list(FROM_NOTHING))
    options = parser.parse_args()
    print(machine())
    for toolchain in options.toolchain or FROM_NOTHING:
        measure(toolchain, options.python or ["3.8", "3.10", "3.12"])


if __name__ == "__main__":
    main()
