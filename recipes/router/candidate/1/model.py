"""The risk of a customer: each amount counts, the more the larger it is."""

import numpy as np
import triton_python_backend_utils as pb_utils

LIMIT = 100


class TritonPythonModel:
    def execute(self, requests: list) -> list:
        return [self.respond(request) for request in requests]

    def respond(self, request):
        amounts = pb_utils.get_input_tensor_by_name(request, "AMOUNTS").as_numpy()
        if (amounts < 0).any():
            problem = pb_utils.TritonError("amounts must not be negative", pb_utils.TritonError.INVALID_ARG)
            return pb_utils.InferenceResponse(error=problem)
        each = amounts / (amounts + LIMIT)
        risk = each.mean(dtype=np.float32, keepdims=True) if len(each) else np.zeros(1, np.float32)
        return pb_utils.InferenceResponse([pb_utils.Tensor("RISK", risk)])
