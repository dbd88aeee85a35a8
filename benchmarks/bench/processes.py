"""Reads figures of running processes from /proc."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Figures:
    """Figures of a process: memory in bytes, numbers of threads and descriptors."""

    rss: int
    pss: int
    threads: int
    descriptors: int


def figures(pid: int) -> Figures:
    """Read the figures of a process."""
    folder = Path("/proc") / str(pid)
    memory = {line.split()[0]: line.split()[1] for line in (folder / "smaps_rollup").read_text().splitlines()[1:]}
    return Figures(
        rss=int(memory["Rss:"]) * 1024,
        pss=int(memory["Pss:"]) * 1024,
        threads=len(list((folder / "task").iterdir())),
        descriptors=len(list((folder / "fd").iterdir())),
    )


def cpu_seconds(pid: int) -> float:
    """Processor seconds of all living threads, at a finer resolution than the clock ticks in ``stat``."""
    return sum(_thread_seconds(task) for task in (Path("/proc") / str(pid) / "task").iterdir())


def main_thread_seconds(pid: int) -> float:
    """Processor seconds of the main thread."""
    return _thread_seconds(Path("/proc") / str(pid) / "task" / str(pid))


def _thread_seconds(task: Path) -> float:
    return int((task / "schedstat").read_text().split()[0]) / 1e9
