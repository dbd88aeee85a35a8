"""What the models need of a library for GPUs, made of CuPy; torch_gpu.py has the same names."""

import gc

import cupy

# Work for a stream before what is waited for; about half a second on a GPU with 2 GHz.
_CYCLES = 1_000_000_000
_SPIN = r"""
extern "C" __global__ void spin(long long cycles) {
  const long long start = clock64();
  while (clock64() - start < cycles) {
  }
}
"""


def numbers(values, device):
    """Floats on a device."""
    with cupy.cuda.Device(device):
        return cupy.array(values, dtype=cupy.float32)


def count_up(count, device):
    """0, 1, 2, … as floats on a device."""
    with cupy.cuda.Device(device):
        return cupy.arange(count, dtype=cupy.float32)


def sent_to(tensor, device):
    """A tensor of the server that is in host memory, copied to a device."""
    with cupy.cuda.Device(device):
        return cupy.asarray(tensor.as_numpy())


def view(tensor):
    """A tensor of the server, wherever it is, without a copy where CuPy can do without."""
    return cupy.asarray(tensor.as_numpy()) if tensor.is_cpu() else cupy.from_dlpack(tensor)


def listed(array):
    return array.get().tolist()


def equal(left, right):
    return bool(cupy.array_equal(left, right))


def is_on_gpu(array):
    return isinstance(array, cupy.ndarray)


def allocated(device):
    """Bytes on the device that this process has not given back to the library."""
    gc.collect()
    with cupy.cuda.Device(device) as chosen:
        chosen.synchronize()
        return cupy.get_default_memory_pool().used_bytes()


def late(array, added, wrap):
    """Send ``array + added`` through ``wrap`` while a stream of its own is still far from having computed it.

    Returns what ``wrap`` made, and whether the stream was busy when ``wrap`` was called.
    """
    spin = cupy.RawKernel(_SPIN, "spin")
    result = cupy.full_like(array, -1)
    array.device.synchronize()
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        spin((1,), (1,), (cupy.int64(_CYCLES),))
        cupy.add(array, added, out=result)
        busy = not stream.done
        return wrap(result), busy
