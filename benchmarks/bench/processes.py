"""Reads figures of running processes from /proc."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from envpack.server import proc


@dataclass(frozen=True)
class Figures:
    """Figures of a process: memory in bytes, numbers of threads and descriptors."""

    rss: int
    pss: int
    threads: int
    descriptors: int


def of_model(folder: Path) -> tuple[int, ...]:
    """Process ids of all stubs of a model, and of the processes that they have forked.

    The command line of each of them contains the path of the model's file.
    """
    wanted = os.fsencode(f"{folder}/")
    return tuple(pid for pid in proc.all_pids() if _first_argument(pid).startswith(wanted))


def _first_argument(pid: int) -> bytes:
    try:
        words = (Path("/proc") / str(pid) / "cmdline").read_bytes().split(b"\0")
    except OSError:  # it has ended
        return b""
    return words[1] if len(words) > 1 else b""


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
