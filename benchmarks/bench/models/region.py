"""Returns its input, and the number of free bytes of the shared-memory region."""

import c_python_backend_utils
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self._respond(request) for request in requests]

    def _respond(self, request):
        array = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()
        free = np.array([c_python_backend_utils.shared_memory.free_memory()], np.int64)
        tensors = [pb_utils.Tensor("OUT", array), pb_utils.Tensor("FREE", free)]
        return pb_utils.InferenceResponse(output_tensors=tensors)
