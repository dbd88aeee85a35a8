"""Where the time of a run went, by ring."""

import resource
from collections import defaultdict
from dataclasses import dataclass, field

import pytest

from tests.rings import ring_of


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


class RingTimes:
    """A plugin of pytest that prints a table when the run ends."""

    def __init__(self):
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
        terminalreporter.section("where the time went")
        terminalreporter.write_line(f"{'ring':14}{'tests':>7}{'seconds':>9}{'in fixtures':>13}{'CPU':>7}")
        for ring in sorted(self._rings, key=lambda ring: -self._rings[ring].seconds):
            spent = self._rings[ring]
            numbers = f"{spent.seconds:>9.0f}{spent.preparing:>13.0f}{spent.cpu:>7.0f}"
            terminalreporter.write_line(f"{ring:14}{len(spent.tests):>7}{numbers}")


def _cpu_seconds():
    used = [resource.getrusage(processes) for processes in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def pytest_configure(config):
    config.pluginmanager.register(RingTimes())
