"""What the models need of a library for GPUs, made of PyTorch; cupy_gpu.py has the same names."""

import gc

import torch

# Work for a stream before what is waited for; about half a second on a GPU with 2 GHz.
_CYCLES = 1_000_000_000


def numbers(values, device):
    """Floats on a device."""
    return torch.tensor(values, dtype=torch.float32, device=f"cuda:{device}")


def count_up(count, device):
    """0, 1, 2, … as floats on a device."""
    return torch.arange(count, dtype=torch.float32, device=f"cuda:{device}")


def sent_to(tensor, device):
    """A tensor of the server that is in host memory, copied to a device."""
    return torch.from_dlpack(tensor).to(f"cuda:{device}")


def view(tensor):
    """A tensor of the server, wherever it is, without a copy."""
    return torch.from_dlpack(tensor)


def listed(array):
    return array.cpu().tolist()


def equal(left, right):
    return bool(torch.equal(left, right))


def is_on_gpu(array):
    return array.is_cuda


def allocated(device):
    """Bytes on the device that this process has not given back to the library."""
    gc.collect()
    torch.cuda.synchronize(device)
    return torch.cuda.memory_allocated(device)


def late(array, added, wrap):
    """Send ``array + added`` through ``wrap`` while a stream of its own is still far from having computed it.

    Returns what ``wrap`` made, and whether the stream was busy when ``wrap`` was called.
    """
    result = torch.full_like(array, -1)
    torch.cuda.synchronize(array.device)
    stream = torch.cuda.Stream(array.device)
    with torch.cuda.stream(stream):
        torch.cuda._sleep(_CYCLES)
        result.copy_(array + added)
        busy = not stream.query()
        return wrap(result), busy
