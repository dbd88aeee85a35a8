"""Where the time of a run went, by ring, beside what tests/times.toml has of an earlier run.

    pytest --part gate --record-times       write this run's times of the gate to tests/times.toml

Each run of a part writes its times to build/times.toml too.
"""

import resource
import tomllib
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.rings import ring_of

RECORDED = Path(__file__).with_name("times.toml")
WRITTEN = Path(__file__).parents[1] / "build/times.toml"
_HEADER = """# Seconds by part and ring, from `pytest --part PART --record-times`: "cpu" is that of the tests and of
# the programs that ended while they ran, and "waiting" is the rest.
"""
# A ring that grew by less is noise.
_GROWTH, _SECONDS = 1.1, 3


@dataclass
class Spent:
    """What the tests of one ring took.

    Attributes:
        tests: node ids.
        seconds: of all tests, as if they had run after each other.
        preparing: seconds of them in fixtures.
        cpu: seconds of CPU time of the tests and of the programs that ended while they ran.
    """

    tests: set = field(default_factory=set)
    seconds: float = 0.0
    preparing: float = 0.0
    cpu: float = 0.0

    @property
    def waiting(self):
        """Seconds in which neither a test nor a program that it waited for computed, at least."""
        return max(0.0, self.seconds - self.cpu)

    def row(self):
        """The figures as they are recorded."""
        return {
            "tests": len(self.tests),
            "seconds": round(self.seconds),
            "cpu": round(self.cpu),
            "waiting": round(self.waiting),
        }


class RingTimes:
    """A plugin of pytest that prints a table when the run ends.

    Args:
        part: the part that runs, ``all`` for everything; "" for a choice of tests, which is compared with nothing.
        record: whether the times become those to compare with.
    """

    def __init__(self, part, *, record=False):
        self._part, self._record = part, record
        self._rings = defaultdict(Spent)
        self._cpu = _cpu_seconds()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self):
        report = yield
        before, self._cpu = self._cpu, _cpu_seconds()
        report.cpu_seconds = self._cpu - before
        return report

    def pytest_runtest_logreport(self, report):
        spent = self._rings[ring_of(report.nodeid)]
        spent.tests.add(report.nodeid)
        spent.seconds += report.duration
        spent.preparing += report.duration if report.when != "call" else 0
        spent.cpu += getattr(report, "cpu_seconds", 0.0)  # missing when the process of the tests crashed

    def pytest_terminal_summary(self, terminalreporter):
        if not self._rings:
            return
        terminalreporter.section("where the time went")
        terminalreporter.write_line(f"{'ring':14}{'tests':>7}{'seconds':>9}{'in fixtures':>13}{'CPU':>7}{'waiting':>9}")
        for ring in sorted(self._rings, key=lambda ring: -self._rings[ring].seconds):
            spent = self._rings[ring]
            numbers = f"{spent.seconds:>9.0f}{spent.preparing:>13.0f}{spent.cpu:>7.0f}{spent.waiting:>9.0f}"
            terminalreporter.write_line(f"{ring:14}{len(spent.tests):>7}{numbers}")
        rows = {ring: spent.row() for ring, spent in self._rings.items()}
        if self._part:
            for line in grown(rows, read_times(RECORDED).get(self._part, {})):
                terminalreporter.write_line(line)
            for file in (WRITTEN, *([RECORDED] if self._record else [])):
                write_times(file, read_times(file) | {self._part: rows})


def grown(rows, recorded):
    """Lines that name the rings whose CPU time grew by more than a tenth.

    A slow machine lengthens every ring, so each is compared with the growth of all others.
    """
    known = {ring: (rows[ring]["cpu"], recorded[ring]["cpu"]) for ring in rows if recorded.get(ring, {}).get("cpu")}
    now, before = sum(now for now, _ in known.values()), sum(before for _, before in known.values())
    if not before:
        return []
    lines = [f"CPU time of these rings: {now / before:.2f} times that in tests/{RECORDED.name}"]
    for ring, (mine, earlier) in sorted(known.items()):
        expected = earlier * ((now - mine) / (before - earlier) if before > earlier else 1)
        if mine > _GROWTH * expected and mine - expected > _SECONDS:
            lines.append(
                f"{ring} grew: {mine} CPU-seconds, {mine / expected:.2f} times as much as the growth of the others"
            )
    return lines


def read_times(file):
    """The times in a file: by part and ring; none if there is no such file."""
    return tomllib.loads(file.read_text(encoding="utf-8")) if file.exists() else {}


def write_times(file, times):
    """Write times, one line for each ring."""
    file.parent.mkdir(exist_ok=True)
    lines = [_HEADER]
    for part, rows in sorted(times.items()):
        lines.append(f'["{part}"]')
        for ring, row in sorted(rows.items()):
            lines.append(f"{ring} = {{ {', '.join(f'{name} = {number}' for name, number in row.items())} }}")
        lines.append("")
    file.write_text("\n".join(lines), encoding="utf-8")


def _cpu_seconds():
    used = [resource.getrusage(processes) for processes in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def pytest_addoption(parser):
    parser.addoption("--record-times", action="store_true", help="write the times of this part to tests/times.toml")


def pytest_configure(config):
    whole = config.args_source is config.ArgsSource.TESTPATHS and not (config.option.keyword or config.option.markexpr)
    part = (config.getoption("--part") or "all") if whole and not hasattr(config, "workerinput") else ""
    config.pluginmanager.register(RingTimes(part, record=config.getoption("--record-times")))
