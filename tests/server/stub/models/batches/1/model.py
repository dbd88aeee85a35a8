"""Doubles its input, rejects negative values, drops a request with 100, and returns the size of its batch."""

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        size = np.array([[len(requests)]], dtype=np.int64)
        return [self._answer(request, size) for request in requests]

    def _answer(self, request, size):
        data = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()
        if (data == 100).any():
            return None
        if (data < 0).any():
            return pb_utils.InferenceResponse([], pb_utils.TritonError("negative", pb_utils.TritonError.INVALID_ARG))
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUT", data * 2), pb_utils.Tensor("SIZE", size)])
