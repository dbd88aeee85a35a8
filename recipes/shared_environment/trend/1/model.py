"""The slope of a signal: the median of all slopes between two of its values (Theil and Sen)."""

import numpy as np
import triton_python_backend_utils as pb_utils
from scipy import stats


class TritonPythonModel:
    def execute(self, requests: list) -> list:
        return [self.respond(request) for request in requests]

    def respond(self, request):
        values = pb_utils.get_input_tensor_by_name(request, "SIGNAL").as_numpy()
        return pb_utils.InferenceResponse([pb_utils.Tensor("SLOPE", self.computed(values))])

    def computed(self, values: np.ndarray) -> np.ndarray:
        slope = stats.theilslopes(values).slope if len(values) > 1 else 0
        return np.array([slope], dtype=np.float32)
