"""Reads the devices from NVIDIA's driver, without a context; runs on any Python 3, before anything is installed.

Ends with 3 and one line where there is none.
"""

import ctypes
import sys

# Folders of containers and WSL that the loader does not search.
PLACES = ("", "/usr/local/nvidia/lib64/", "/usr/lib/wsl/lib/", "/usr/lib64/", "/usr/lib/x86_64-linux-gnu/")
NO_GPU = 3


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


if __name__ == "__main__":
    try:
        count_devices()
    except NoGpuError as error:
        print(f"no GPU: {error}")
        sys.exit(NO_GPU)
