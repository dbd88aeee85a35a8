"""Asks NVIDIA's driver for its devices, without making a context; runs on any Python 3, before anything is installed.

Ends with 3 and one line where there is none.
"""

import ctypes
import sys

# Where containers and WSL put it without telling the loader.
PLACES = ("", "/usr/local/nvidia/lib64/", "/usr/lib/wsl/lib/", "/usr/lib64/", "/usr/lib/x86_64-linux-gnu/")
NO_GPU = 3


class NoGpuError(Exception):
    """There is no driver, or no device; the text says which."""


def find_driver() -> "tuple[ctypes.CDLL, str]":
    """The library, and the folder that it was found in, ``""`` if the loader knows it."""
    for place in PLACES:
        try:
            return ctypes.CDLL(place + "libcuda.so.1"), place
        except OSError:
            continue
    raise NoGpuError("NVIDIA's driver (libcuda.so.1) is not on this machine, or not in this container")


def count_devices() -> int:
    """How many devices there are.

    Raises:
        NoGpuError: none can be used.

    """
    driver, _ = find_driver()
    status = driver.cuInit(0)
    if status:
        raise NoGpuError(f"the driver is there but cannot be used: cuInit says {status}")
    count = ctypes.c_int()
    status = driver.cuDeviceGetCount(ctypes.byref(count))
    if status or not count.value:
        raise NoGpuError(f"the driver has no device: cuDeviceGetCount says {status}")
    return count.value


if __name__ == "__main__":
    try:
        count_devices()
    except NoGpuError as error:
        print(f"no GPU: {error}")
        sys.exit(NO_GPU)
