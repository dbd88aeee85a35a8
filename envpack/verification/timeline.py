"""What the load of a model consisted of, read from the times in the server's log."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator
from dataclasses import dataclass

from envpack.server import stub_reports
from envpack.verification.verdict import Phase

# "I1121 23:28:31.727738 26627 file.cc:472] ..."; there is no year.
_LINE = re.compile(r'^[IWEF](?P<when>\d{4} \d\d:\d\d:\d\d\.\d{6}) \d+ \S+\] "?(?P<text>.*)$')
_LEAP_YEAR = "2024"
_EXTRACTING = re.compile(r"Extracting Python execution env")
_LAUNCH = re.compile(r"Starting Python backend stub")
_INSTANCE = re.compile(r"TRITONBACKEND_ModelInstanceInitialize: (?!instance)(?P<instance>\S+) \(")
_REPORT = re.compile(r"envpack-stub ")
_DONE = re.compile(r"TRITONBACKEND_ModelInstanceInitialize: instance initialization successful")


@dataclass(frozen=True)
class _Event:
    """A line of the log, and when it was written: seconds after an instant that is the same for all."""

    seconds: float
    text: str


def read_phases(log: str, since: int) -> tuple[Phase, ...]:
    """The phases of one model's load, of its first instance if it has several; none if the log does not tell.

    Args:
        log: all that the server has written; its first line is the time from which phases are counted.
        since: where in ``log`` the load began, during which no other model was loaded.

    """
    first = next(_events(log), None)
    events = tuple(_events(log[since:]))
    instance = _find(events, _INSTANCE)
    launch = _find(events, _LAUNCH)
    if first is None or instance is None or launch is None:
        return ()
    marks: list[tuple[str, float, float]] = []
    extraction = _find(events, _EXTRACTING)
    if extraction:
        marks.append(("extraction", extraction.seconds, launch.seconds))
    if launch.seconds < instance.seconds:
        marks.append(("configuration", launch.seconds, instance.seconds))
    later = tuple(event for event in events if event.seconds >= instance.seconds)
    marks += _of_instance(later, log[since:])
    return tuple(Phase(name, start - first.seconds, end - start) for name, start, end in marks)


def _of_instance(events: tuple[_Event, ...], log: str) -> Iterator[tuple[str, float, float]]:
    """From the start of an instance's process until it is ready. Our stub says how long its parts took at their end."""
    launch, report, done = _find(events, _LAUNCH), _find(events, _REPORT), _find(events, _DONE)
    if launch is None or done is None:
        return
    told = next(iter(stub_reports(log).values()), {})
    import_seconds, initialize_seconds = told.get("import_seconds"), told.get("initialize_seconds")
    if report is None or not isinstance(import_seconds, float) or not isinstance(initialize_seconds, float):
        yield "instance", launch.seconds, done.seconds
        return
    initialized = report.seconds - initialize_seconds
    imported = initialized - import_seconds
    yield "stub start", launch.seconds, max(launch.seconds, imported)
    yield "import", imported, initialized
    yield "initialize", initialized, report.seconds


def _find(events: tuple[_Event, ...], pattern: re.Pattern[str]) -> _Event | None:
    return next((event for event in events if pattern.search(event.text)), None)


def _events(log: str) -> Iterator[_Event]:
    for line in log.splitlines():
        match = _LINE.match(line)
        if match:
            when = datetime.datetime.strptime(f"{_LEAP_YEAR}{match['when']}", "%Y%m%d %H:%M:%S.%f")
            yield _Event(when.timestamp(), match["text"])
