"""Imports torch, and returns its input."""

import torch
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self._respond(request) for request in requests]

    def _respond(self, request):
        tensor = torch.from_numpy(request.inputs()[0].as_numpy())
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUT", tensor.numpy())])
