"""Figures of running processes, out of Linux's /proc."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Figures:
    """Of one process: memory in bytes, the rest are counts."""

    rss: int
    pss: int
    threads: int
    descriptors: int


def figures(pid: int) -> Figures:
    folder = Path("/proc") / str(pid)
    memory = {line.split()[0]: line.split()[1] for line in (folder / "smaps_rollup").read_text().splitlines()[1:]}
    return Figures(
        rss=int(memory["Rss:"]) * 1024,
        pss=int(memory["Pss:"]) * 1024,
        threads=len(list((folder / "task").iterdir())),
        descriptors=len(list((folder / "fd").iterdir())),
    )


def cpu_seconds(pid: int) -> float:
    """Processor time of all living threads; finer than the clock ticks that ``stat`` counts."""
    tasks = (Path("/proc") / str(pid) / "task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9
