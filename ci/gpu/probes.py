"""Measures the use of GPUs from outside the processes."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

_PLACES = ("/usr/local/nvidia/bin", "/usr/lib/wsl/lib")
_SECONDS = 20


def used_megabytes() -> int | None:
    """Memory in use on all devices together, by all processes; None if nvidia-smi does not report it."""
    numbers = _query("--query-gpu=memory.used")
    return sum(numbers) if numbers else None


def compute_processes() -> list[int]:
    """Processes with a context on a GPU, as far as nvidia-smi lists them; in a container it often lists none."""
    return _query("--query-compute-apps=pid")


def _query(query: str) -> list[int]:
    program = shutil.which("nvidia-smi") or next(
        (f for p in _PLACES if (f := shutil.which("nvidia-smi", path=p))), None
    )
    if program is None:
        return []
    try:
        done = subprocess.run(
            [program, query, "--format=csv,noheader,nounits"],
            capture_output=True, text=True, timeout=_SECONDS, check=True,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return []
    return [int(line) for line in done.stdout.split() if line.isdigit()]


def opened_devices(pid: int) -> set[str]:
    """The GPU devices that a process has opened; one with a context has at least one."""
    found = set()
    for entry in (Path("/proc") / str(pid) / "fd").iterdir():
        try:
            target = str(entry.readlink())
        except OSError:  # closed by now
            continue
        if target.startswith(("/dev/nvidia", "/dev/dxg")):
            found.add(target)
    return found
