"""The simulation of a fleet repeats itself, and keeps what no schedule can break."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def simulated(*words):
    command = [sys.executable, str(ROOT / "benchmarks/fleet_simulation.py"), *words]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    rows = [line.split() for line in out.split("limit\n")[1].split("\n\n")[0].splitlines()]
    return out, {int(row[0]): float(row[2]) for row in rows}


def test_the_same_options_give_the_same_output():
    assert simulated("--workers", "1,100")[0] == simulated("--workers", "1,100")[0]


def test_more_workers_are_faster_and_never_by_more_than_their_number():
    _, ratios = simulated("--workers", "1,2,10,100")
    assert ratios[1] == 1.0
    assert all(before < after for before, after in zip(ratios.values(), list(ratios.values())[1:], strict=False))
    assert all(ratio <= count for count, ratio in ratios.items())


@pytest.mark.parametrize(("words", "limit"), [(("--bandwidth", "20"), "store"), (("--dispatch", "1"), "scheduler")])
def test_what_is_slow_is_named_as_the_limit(words, limit):
    out, ratios = simulated("--workers", "1,500", *words)
    assert f"{limit}\n" in out
    assert ratios[500] < 100
