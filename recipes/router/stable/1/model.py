"""The risk of a customer: the share of amounts above a limit."""

import numpy as np
import triton_python_backend_utils as pb_utils

LIMIT = 100


class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            amounts = pb_utils.get_input_tensor_by_name(request, "AMOUNTS").as_numpy()
            risk = np.mean(amounts > LIMIT, dtype=np.float32).reshape(1) if len(amounts) else np.zeros(1, np.float32)
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("RISK", risk)]))
        return responses
