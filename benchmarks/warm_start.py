"""Compares the warm start of model instances with the cold one, and with the release's own stub, in one server.

    python benchmarks/warm_start.py [--only science] [--repeat 5] [--science FOLDER] [--torch FOLDER] [--json FILE]

Loads each model with the release's own stub ("release"), with ours started cold ("cold") and warm ("warm"), in turns:

    science   one instance that imports NumPy, pandas, SciPy and scikit-learn: seconds of a load
    torch     one instance, and eight, that import torch on the CPU: seconds of a load, and memory of the eight
    weights   eight instances with weights of 500 MB made in initialize(), warm with ENVPACK_TEMPLATE=initialize

Memory is the sum of PSS of all processes of the model: stubs, workers, template. Configurations are completed
automatically, after which the server waits for a second, whatever the stub; --no-auto-complete serves them as they are.
--science and --torch name existing environments with the packages, for the Python of the release's own stub; by
default, envpack builds them. Prints medians, ratios and the goals; exits with 1 if a goal is missed.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bench import processes
from bench.preparation import Preparation, prepare

from envpack.server.kserve import Client
from envpack.server.launch import find_server
from envpack.server.log import stub_reports
from envpack.server.process import ProcessRuntime, ProcessServer
from envpack.server.tensors import Tensor

CONFIG = """\
max_batch_size: 0
input [ {{ name: "IN" data_type: TYPE_UINT8 dims: [ -1 ] }} ]
output [ {{ name: "OUT" data_type: TYPE_UINT8 dims: [ -1 ] }} ]
instance_group [ {{ kind: KIND_CPU count: {count} }} ]
{parameters}"""
PARAMETER = 'parameters {{ key: "{}" value {{ string_value: "{}" }} }}\n'
VARIANTS = ("release", "cold", "warm")
MANY = 8
LOAD_SECONDS = 300
GONE_SECONDS = 60
REPORT_SECONDS = 10
PROBE = Tensor("IN", "UINT8", (4,), (1, 2, 3, 4))
PACKAGES = {"science": ("pandas", "scipy", "scikit-learn"), "torch": ("torch==1.12.1",), "weights": ()}


@dataclass(frozen=True)
class Kind:
    """A model: its file, its number of instances, and whether its template initializes it."""

    name: str
    scenario: str
    code: str
    count: int = 1
    initialize: bool = False

    def config(self, variant: str) -> str:
        parameters = {"ENVPACK_START": "warm"} if variant == "warm" else {}
        if self.initialize and parameters:
            parameters["ENVPACK_TEMPLATE"] = "initialize"
        text = "".join(PARAMETER.format(*item) for item in parameters.items())
        return CONFIG.format(count=self.count, parameters=text)


KINDS = (
    Kind("science", "science", "science"),
    Kind("torch", "torch", "torch_cpu"),
    Kind(f"torch x{MANY}", "torch", "torch_cpu", MANY),
    Kind(f"weights x{MANY}", "weights", "weights", MANY, initialize=True),
)


@dataclass(frozen=True)
class Goal:
    """A promise: one figure divided by another, and its limit."""

    what: str
    dividend: tuple[str, str]  # name of a kind, and variant
    divisor: tuple[str, str]
    of: str
    limit: float
    at_least: bool = False

    def holds(self, ratio: float) -> bool:
        return ratio >= self.limit if self.at_least else ratio <= self.limit


GOALS = (
    Goal("load, faster than the release's own", ("science", "release"), ("science", "warm"), "seconds", 1.6, True),
    Goal("load of 8, faster than the release's own", ("torch x8", "release"), ("torch x8", "warm"), "seconds", 5, True),
    Goal("load of 8 / load of one", ("torch x8", "warm"), ("torch", "warm"), "seconds", 1.3),
    Goal("memory of 8 / the release's own", ("torch x8", "warm"), ("torch x8", "release"), "MiB", 0.3),
    Goal("memory of 8 / the release's own", ("weights x8", "warm"), ("weights x8", "release"), "MiB", 0.2),
)


@dataclass
class Loads:
    """Measured loads of one kind in one variant."""

    seconds: list[float] = field(default_factory=list)
    mebibytes: list[float] = field(default_factory=list)
    processes: int = 0

    def median(self, of: str) -> float:
        return statistics.median(self.seconds if of == "seconds" else self.mebibytes)


class NotStartedWarmError(Exception):
    """A model whose configuration asks for a warm start was started cold."""


@dataclass(frozen=True)
class Bench:
    """The running server and its repository."""

    server: ProcessServer
    client: Client
    repository: Path

    def measure(self, kind: Kind, variant: str, loads: Loads) -> None:
        """Load a model, send a request, measure its memory, and unload it."""
        model = folder_name(kind, variant)
        logged = self.server.log_size()
        with self.loaded(model, loads):
            self.client.infer(model, [PROBE])
            if variant == "warm":
                self._check_warm(kind.count, logged)
            pids = processes.of_model(self.repository / model)
            loads.mebibytes.append(sum(processes.figures(pid).pss for pid in pids) / 2**20)
            loads.processes = len(pids)

    @contextmanager
    def loaded(self, model: str, loads: Loads) -> Iterator[None]:
        started = time.perf_counter()
        self.client.load(model, timeout=LOAD_SECONDS)
        loads.seconds.append(time.perf_counter() - started)
        try:
            yield
        finally:
            self.client.unload(model)
            self._wait_until_gone(model)

    def _check_warm(self, count: int, logged: int) -> None:
        """Wait for the reports of all instances, which can arrive late."""
        until = time.monotonic() + REPORT_SECONDS
        while time.monotonic() < until and len(stub_reports(self.server.log(logged))) < count:
            time.sleep(0.02)
        log = self.server.log(logged)
        starts = [report.start for report in stub_reports(log).values()]
        if starts != ["warm"] * count:
            cause = next((line for line in log.splitlines() if "starts cold: " in line), "the stub does not report it")
            raise NotStartedWarmError(cause)

    def _wait_until_gone(self, model: str) -> None:
        """Wait for the end of all processes, which would disturb the next load."""
        until = time.monotonic() + GONE_SECONDS
        while pids := processes.of_model(self.repository / model):
            if time.monotonic() > until:
                raise SystemExit(f"{model} is unloaded, but its processes {pids} have not ended")
            time.sleep(0.02)


def folder_name(kind: Kind, variant: str) -> str:
    return f"{kind.name.replace(' ', '_')}_{variant}"


def prepare_all(chosen: list[str], prefixes: dict[str, Path | None]) -> dict[str, Preparation]:
    return {name: prepare(PACKAGES[name], prefixes.get(name)) for name in chosen}


def measure(
    preparations: dict[str, Preparation], repeat: int, arguments: tuple[str, ...]
) -> tuple[dict[tuple[str, str], Loads], list[str]]:
    """All loads by kind and variant, and what could not be measured, with these arguments of the server."""
    kinds = [kind for kind in KINDS if kind.scenario in preparations]
    table: dict[tuple[str, str], Loads] = {}
    missing: dict[tuple[str, str], str] = {}
    with tempfile.TemporaryDirectory(prefix="envpack-benchmark-") as folder:
        repository = Path(folder)
        for kind in kinds:
            for variant in VARIANTS:
                parts = preparations[kind.scenario]
                stub = None if variant == "release" else parts.stub
                parts.place(repository / folder_name(kind, variant), kind.code, kind.config(variant), stub)
        with ProcessRuntime(find_server(), arguments=arguments).start(repository) as server:
            bench = Bench(server, Client(server.url, timeout=60), repository)
            for kind in kinds:
                bench.measure(kind, "release", Loads())  # reads the files of the environment for all
                for turn in range(repeat):
                    for variant in VARIANTS[:: 1 if turn % 2 == 0 else -1]:
                        _measure_if_possible(bench, kind, variant, table, missing)
    return table, [f"{name}, {variant}: {why}" for (name, variant), why in missing.items()]


def _measure_if_possible(
    bench: Bench,
    kind: Kind,
    variant: str,
    table: dict[tuple[str, str], Loads],
    missing: dict[tuple[str, str], str],
) -> None:
    key = kind.name, variant
    if key in missing:
        return
    print(f"  {kind.name}, {variant} …", file=sys.stderr, flush=True)
    try:
        bench.measure(kind, variant, table.setdefault(key, Loads()))
    except NotStartedWarmError as error:
        missing[key] = str(error)
        del table[key]


def show(table: dict[tuple[str, str], Loads], missing: list[str], goals: Sequence[Goal]) -> bool:
    """Print the table and the goals; returns whether every goal is reached."""
    line = "{:12} {:9} {:>8} {:>10} {:>10}"
    print(line.format("model", "variant", "load, s", "PSS, MiB", "processes"))
    for (name, variant), loads in table.items():
        figures = (f"{loads.median('seconds'):.2f}", f"{loads.median('MiB'):.0f}", loads.processes)
        print(line.format(name, variant, *figures))
    reached = not missing
    for goal in goals:
        if goal.dividend in table and goal.divisor in table:
            ratio = table[goal.dividend].median(goal.of) / table[goal.divisor].median(goal.of)
            word = "at least" if goal.at_least else "at most"
            verdict = "reached" if goal.holds(ratio) else "missed"
            print(f"{goal.dividend[0]}: {goal.what}: {ratio:.2f}, goal {word} {goal.limit:g}: {verdict}")
            reached &= goal.holds(ratio)
    for text in missing:
        print(f"not measured: {text}")
    return reached


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=list(PACKAGES), help="only this scenario; repeatable")
    parser.add_argument("--repeat", type=int, default=3, help="loads of each variant (default: %(default)s)")
    for name in ("science", "torch"):
        parser.add_argument(f"--{name}", type=Path, metavar="FOLDER", help="an environment with the packages of it")
    parser.add_argument("--no-auto-complete", action="store_true", help="with --disable-auto-complete-config")
    parser.add_argument("--json", type=Path, metavar="FILE")
    return parser.parse_args()


def main() -> int:
    options = parse_options()
    chosen = [name for name in PACKAGES if not options.only or name in options.only]
    preparations = prepare_all(chosen, {"science": options.science, "torch": options.torch})
    arguments = ("--disable-auto-complete-config",) if options.no_auto_complete else ()
    table, missing = measure(preparations, options.repeat, arguments)
    # One instance whose configuration is not completed imports the model once, however it starts.
    goals = [goal for goal in GOALS if not (options.no_auto_complete and goal.dividend[0] == "science")]
    reached = show(table, missing, goals)
    if options.json:
        rows = [
            {"model": name, "variant": variant, "seconds": loads.seconds, "MiB": loads.mebibytes}
            for (name, variant), loads in table.items()
        ]
        options.json.write_text(json.dumps(rows, indent=1) + "\n")
    return 0 if reached else 1


if __name__ == "__main__":
    sys.exit(main())
