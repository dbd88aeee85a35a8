"""Tensors that are computed in place, with any stub."""

import numpy as np
import triton_python_backend_utils as pb_utils


def empty_tensor(name, shape, dtype):
    """A pb_utils.Tensor to be filled by way of its as_numpy().

    With envpack's stub that array is the shared memory that the server reads, and sending the tensor copies nothing.
    With any other stub it is an array in the model's own memory. Fill it before the tensor is sent: what other stubs
    take from it later is undefined.

    Takes the tensor's name, its shape as a sequence of int, and anything that NumPy takes for a dtype, except those of
    BYTES tensors. The values are not initialised. Raises TritonModelException if the shared memory cannot grow.
    """
    in_shared_memory = getattr(pb_utils.Tensor, "empty", None)
    if in_shared_memory is not None:
        return in_shared_memory(name, list(shape), dtype)
    return pb_utils.Tensor(name, np.empty(shape, dtype))
