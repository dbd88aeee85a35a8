"""Scores to label and confidence: Python 3.12 and NumPy 2."""

import numpy as np
import triton_python_backend_utils as pb_utils

NAMES = np.array(["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"], dtype=np.object_)


class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            scores = pb_utils.get_input_tensor_by_name(request, "SCORES").as_numpy()
            label = NAMES[scores.argmax(axis=1)].reshape(-1, 1)
            confidence = scores.max(axis=1, keepdims=True)
            responses.append(
                pb_utils.InferenceResponse([pb_utils.Tensor("LABEL", label), pb_utils.Tensor("CONFIDENCE", confidence)])
            )
        return responses
