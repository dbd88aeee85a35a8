"""Measurements that a verdict reports without judging them: the phases of a load, the size of an environment."""

from __future__ import annotations

import contextlib
import datetime
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from envpack.archive.manifest import read_metadata
from envpack.repository.model import Model
from envpack.server.log import stub_reports
from envpack.verification.verdict import EnvironmentSize, PackageSize, Phase

# "I1121 23:28:31.727738 26627 file.cc:472] ..."; there is no year.
_LINE = re.compile(r'^[IWEF](?P<when>\d{4} \d\d:\d\d:\d\d\.\d{6}) \d+ \S+\] "?(?P<text>.*)$')
_LEAP_YEAR = "2024"
_EXTRACTING = re.compile(r"Extracting Python execution env")
_LAUNCH = re.compile(r"Starting Python backend stub")
_INSTANCE = re.compile(r"TRITONBACKEND_ModelInstanceInitialize: (?!instance)(?P<instance>\S+) \(")
_REPORT = re.compile(r"envpack-stub ")
_DONE = re.compile(r"TRITONBACKEND_ModelInstanceInitialize: instance initialization successful")
_PACKAGE_FOLDERS = ("site-packages", "dist-packages")


@dataclass(frozen=True)
class _Event:
    """A log line and its time in seconds, counted from a fixed instant."""

    seconds: float
    text: str


def read_phases(log: str, of_load: str) -> tuple[Phase, ...]:
    """The phases of a load, of the first instance if there are several; empty if the log does not contain them."""
    first = next(_events(log), None)
    events = tuple(_events(of_load))
    instance = _find(events, _INSTANCE)
    launch = _find(events, _LAUNCH)
    if first is None or instance is None or launch is None:
        return ()
    marks: list[tuple[str, float, float]] = []
    if extraction := _find(events, _EXTRACTING):
        marks.append(("extraction", extraction.seconds, launch.seconds))
    if launch.seconds < instance.seconds:
        marks.append(("configuration", launch.seconds, instance.seconds))
    later = tuple(event for event in events if event.seconds >= instance.seconds)
    marks += _of_instance(later, of_load, completed=launch.seconds < instance.seconds)
    # A model can print lines that look like the server's, with any time.
    possible = ((name, start, end) for name, start, end in marks if first.seconds <= start <= end)
    return tuple(Phase(name, start - first.seconds, end - start) for name, start, end in possible)


def _of_instance(events: tuple[_Event, ...], log: str, *, completed: bool) -> Iterator[tuple[str, float, float]]:
    """The phases of an instance, from the start of its process until it is ready.

    envpack's stub reports the durations of import and initialization when both are done. After a warm start, the import
    is a part of the phase that has completed the configuration, if there was one.
    """
    launch, report, done = _find(events, _LAUNCH), _find(events, _REPORT), _find(events, _DONE)
    if launch is None or done is None:
        return
    timings = next(iter(stub_reports(log).values()), None)
    if report is None or timings is None or timings.import_seconds is None or timings.initialize_seconds is None:
        yield "instance", launch.seconds, done.seconds
        return
    initialized = report.seconds - timings.initialize_seconds
    if completed and timings.start == "warm":
        yield "stub start", launch.seconds, max(launch.seconds, initialized)
    else:
        imported = initialized - timings.import_seconds
        yield "stub start", launch.seconds, max(launch.seconds, imported)
        yield "import", imported, initialized
    yield "initialize", initialized, report.seconds


def _find(events: tuple[_Event, ...], pattern: re.Pattern[str]) -> _Event | None:
    return next((event for event in events if pattern.search(event.text)), None)


def _events(log: str) -> Iterator[_Event]:
    for line in log.splitlines():
        match = _LINE.match(line)
        if not match:
            continue
        with contextlib.suppress(ValueError):  # a model has printed a line with a time that does not exist
            when = datetime.datetime.strptime(f"{_LEAP_YEAR}{match['when']}", "%Y%m%d %H:%M:%S.%f")
            yield _Event(when.timestamp(), match["text"])


def measure_environment(model: Model) -> EnvironmentSize | None:
    """Size of an environment by its metadata, or by the files of a folder without any. None for an archive without
    metadata: unpacking it would take longer than the verification.
    """
    place = model.environment
    if place is None:
        return None
    metadata = read_metadata(place)
    sizes = _by_package(metadata) if metadata else _measured(place) if place.is_dir() else Counter()
    if not sizes:
        return None
    packages = tuple(PackageSize(name, size) for name, size in sizes.most_common())
    return EnvironmentSize(str(place), "folder" if place.is_dir() else "archive", sizes.total(), packages)


def _by_package(metadata: Mapping[str, Any]) -> Counter[str]:
    try:
        sizes = Counter({str(package["name"]): int(package["size"]) for package in metadata["packages"]})
        sizes[""] += max(0, int(metadata["size"]) - sizes.total())
    except (ArithmeticError, KeyError, TypeError, ValueError):
        return Counter()
    return +sizes


def _measured(folder: Path) -> Counter[str]:
    """Sizes by folder in site-packages; all other files are counted under the name ``""``."""
    sizes: Counter[str] = Counter()
    for file in folder.rglob("*"):
        if not file.is_symlink() and file.is_file():
            sizes[_owner(file.relative_to(folder).parts)] += file.stat().st_size
    return sizes


def _owner(parts: tuple[str, ...]) -> str:
    for name in _PACKAGE_FOLDERS:
        if name in parts and parts.index(name) + 2 < len(parts):
            return parts[parts.index(name) + 1].partition("-")[0]
    return ""
