"""Doubles its input; computes it in the output's shared memory if the stub offers `Tensor.empty`."""

import numpy as np
import triton_python_backend_utils as pb_utils


def empty_tensor(name, shape, dtype):
    in_shared_memory = getattr(pb_utils.Tensor, "empty", None)
    if in_shared_memory is not None:
        return in_shared_memory(name, list(shape), dtype)
    return pb_utils.Tensor(name, np.empty(shape, dtype))


class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            array = request.inputs()[0].as_numpy()
            tensor = empty_tensor("OUT", array.shape, array.dtype)
            np.multiply(array, 2, out=tensor.as_numpy())
            responses.append(pb_utils.InferenceResponse([tensor]))
        return responses
