"""Every test belongs to the gate or to one of six slices, and a run says which ring became slower."""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from envpack.settings.pythons import SUPPORTED
from tests import ring_times, rings
from tests.compiled import steps

CHECKOUT = Path(__file__).parents[2]
LISTING = """import json
from pathlib import Path

def pytest_collection_finish(session):
    from tests.rings import is_quick, part_of, ring_of

    tests = {{item.nodeid: (part_of(item), ring_of(item.nodeid), is_quick(item)) for item in session.items}}
    Path({file!r}).write_text(json.dumps(tests))
"""


@pytest.fixture(scope="module")
def collect(tmp_path_factory):
    """Collects tests in a process of its own; returns by node id the part, the ring, and whether it is quick."""
    folder = tmp_path_factory.mktemp("listing")
    file = folder / "tests.json"
    (folder / "listing.py").write_text(LISTING.format(file=str(file)))
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join((str(folder), str(CHECKOUT)))}
    variables["ENVPACK_MINIMUM_PYTHONS"] = "0"  # of those that run

    def run(*words):
        command = [sys.executable, "-m", "pytest", "--collect-only", "-qq", "-p", "listing", *words]
        done = subprocess.run(command, cwd=CHECKOUT, env=variables, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(file.read_text())

    return run


@pytest.fixture(scope="module")
def tests(collect):
    return collect()


def test_every_test_belongs_to_one_part_of_those_that_run(tests):
    assert {part for part, *_ in tests.values()} == set(rings.PARTS)


def test_a_folder_without_a_ring_is_named_with_the_list_that_lacks_it():
    with pytest.raises(pytest.UsageError, match="tests/new/test_x.py::test is in no ring: add its folder to _FOLDERS"):
        rings.ring_of("tests/new/test_x.py::test")


def test_every_ring_has_a_slice():
    assert {rings.slice_of(ring) for ring in rings.RINGS.values()} <= set(rings.SLICES)


def test_the_gate_has_every_kind_of_real_thing(tests):
    in_gate = {ring for part, ring, _ in tests.values() if part == rings.GATE}
    assert in_gate == set(rings.RINGS.values()) - {"distribution", "portability"}


def test_a_part_runs_its_tests_and_no_others(collect, tests):
    folder = "tests/native"
    here = {test: (part, quick) for test, (part, _, quick) in tests.items() if test.startswith(f"{folder}/")}
    for part in {rings.GATE, rings.slice_of("native")}:
        assert set(collect("--part", part, folder)) == {test for test, (mine, _) in here.items() if mine == part}
    assert set(collect("--part", rings.QUICK, folder)) == {test for test, (_, quick) in here.items() if quick}


def test_the_inner_loop_is_part_of_the_gate_without_its_slow_files(tests):
    quick = {test for test, (*_, quick) in tests.items() if quick}
    in_gate = {test for test, (part, *_) in tests.items() if part == rings.GATE}
    assert quick < in_gate
    files = {test.partition("::")[0] for test in in_gate if test.startswith("tests/unit/")}
    left_out = files - {test.partition("::")[0] for test in quick}
    assert left_out == rings.NOT_QUICK


def test_every_python_is_compiled_before_the_part_that_it_runs_in():
    compiled = Counter(name for part in rings.PARTS for name, _ in steps(part))
    assert compiled == Counter(name for name, _ in steps(rings.ALL))
    assert set(compiled) >= {f"stub for Python {minor}" for minor in SUPPORTED}


RECORDED = {"unit": {"cpu": 100}, "stub": {"cpu": 200}, "store": {"cpu": 2}}


@pytest.mark.parametrize(
    ("now", "grew"),
    [
        ({"unit": 100, "stub": 200, "store": 2}, []),
        ({"unit": 150, "stub": 300, "store": 3}, []),  # the machine is slower
        ({"unit": 120, "stub": 200, "store": 2}, ["unit grew: 120 CPU-seconds, 1.20 times"]),
        ({"unit": 100, "stub": 200, "store": 4}, []),  # too short to tell
        ({"unit": 100, "stub": 300, "new": 500}, ["stub grew: 300 CPU-seconds, 1.50 times"]),
    ],
)
def test_a_ring_that_grew_by_more_than_a_tenth_is_named(now, grew):
    lines = ring_times.grown({ring: {"cpu": cpu} for ring, cpu in now.items()}, RECORDED)
    assert len(lines) == 1 + len(grew)
    assert all(line.startswith(start) for line, start in zip(lines[1:], grew, strict=True))


def test_times_are_read_as_they_were_written(tmp_path):
    times = {"gate": {"unit": {"tests": 3, "seconds": 2, "cpu": 1, "waiting": 1}}, "1": {"stub": {"tests": 1}}}
    ring_times.write_times(tmp_path / "made/times.toml", times)
    assert ring_times.read_times(tmp_path / "made/times.toml") == times
    assert ring_times.read_times(tmp_path / "none.toml") == {}
