"""Gives back every input as it came, and says in SEEN what NumPy made of it."""

import json

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self._answer(request) for request in requests]

    def _answer(self, request):
        arrays = {tensor.name(): tensor.as_numpy() for tensor in request.inputs()}
        seen = {name: [array.dtype.name, list(array.shape), array.flags.writeable] for name, array in arrays.items()}
        outputs = [pb_utils.Tensor("OUT_" + name, array) for name, array in arrays.items()]
        outputs.append(pb_utils.Tensor("SEEN", np.array([json.dumps(seen)], dtype=object)))
        return pb_utils.InferenceResponse(outputs)
