"""GPUs of this machine, by the kernel's files; nothing of NVIDIA's needs to be installed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from envpack.doctor.observation import Observation
from envpack.project import Project

_DEVICES = Path("/dev")
_DRIVER = Path("/proc/driver/nvidia")
_VERSION = re.compile(r"Module.*?\s(\d+\.\d+(?:\.\d+)?)\s")


def gpu(project: Project, devices: Path = _DEVICES, driver: Path = _DRIVER) -> Iterator[Observation]:  # noqa: ARG001
    """Whether the driver is there, and which version of it."""
    if not (devices / "nvidiactl").exists():
        what = "none of NVIDIA's; models run on the CPU"
        yield Observation("GPU", "warn", what, "for GPUs: install NVIDIA's driver")
        return
    names = sorted(_name(file) for file in driver.glob("gpus/*/information"))
    yield Observation("GPU", "ok", f"driver {_version(driver)}: {', '.join(names) or 'no device'}")


def _version(driver: Path) -> str:
    try:
        match = _VERSION.search((driver / "version").read_text(encoding="utf-8", errors="replace"))
    except OSError:
        match = None
    return match[1] if match else "unknown"


def _name(file: Path) -> str:
    for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
        if line.startswith("Model:"):
            return line.partition(":")[2].strip()
    return "unknown"
