"""What NVIDIA's driver and its programs say of devices; runs on any Python 3, before anything is installed.

As a program: ends with 3 and one line if there is no device.
"""

import ctypes
import shutil
import subprocess
import sys
from pathlib import Path

# Folders of containers and WSL that the loader does not search.
PLACES = ("", "/usr/local/nvidia/lib64/", "/usr/lib/wsl/lib/", "/usr/lib64/", "/usr/lib/x86_64-linux-gnu/")
NO_GPU = 3
_PROGRAMS = ("/usr/local/nvidia/bin", "/usr/lib/wsl/lib")
_SECONDS = 20


class NoGpuError(Exception):
    """There is no driver or no device; the text names the missing one."""


def find_driver() -> "tuple[ctypes.CDLL, str]":
    """The library and its folder, ``""`` if the loader found it."""
    for place in PLACES:
        try:
            return ctypes.CDLL(place + "libcuda.so.1"), place
        except OSError:
            continue
    raise NoGpuError("NVIDIA's driver (libcuda.so.1) is not on this machine, or not in this container")


def count_devices() -> int:
    """Number of devices.

    Raises:
        NoGpuError: none can be used.

    """
    driver, _ = find_driver()
    status = driver.cuInit(0)
    if status:
        raise NoGpuError(f"the driver is installed but not usable: cuInit returns {status}")
    count = ctypes.c_int()
    status = driver.cuDeviceGetCount(ctypes.byref(count))
    if status or not count.value:
        raise NoGpuError(f"the driver has no device: cuDeviceGetCount returns {status}")
    return count.value


def used_megabytes() -> "int | None":
    """Memory in use on all devices together, by all processes; None if nvidia-smi does not report it."""
    numbers = _query("--query-gpu=memory.used")
    return sum(numbers) if numbers else None


def compute_processes() -> "list[int]":
    """Processes with a context on a GPU, as far as nvidia-smi lists them; in a container it often lists none."""
    return _query("--query-compute-apps=pid")


def _query(query: str) -> "list[int]":
    program = shutil.which("nvidia-smi") or next(
        (f for p in _PROGRAMS if (f := shutil.which("nvidia-smi", path=p))), None
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


def opened_devices(pid: int) -> "set[str]":
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


if __name__ == "__main__":
    try:
        count_devices()
    except NoGpuError as error:
        print(f"no GPU: {error}")
        sys.exit(NO_GPU)
