"""The places of values that are far from the median."""

import numpy as np
import triton_python_backend_utils as pb_utils
from scipy import stats


class TritonPythonModel:
    def execute(self, requests: list) -> list:
        return [self.respond(request) for request in requests]

    def respond(self, request):
        values = pb_utils.get_input_tensor_by_name(request, "SIGNAL").as_numpy()
        return pb_utils.InferenceResponse([pb_utils.Tensor("PLACES", self.computed(values))])

    def computed(self, values: np.ndarray) -> np.ndarray:
        spread = stats.median_abs_deviation(values, scale="normal") if len(values) else 0
        far = np.abs(values - np.median(values)) > 4 * spread if spread else np.zeros(len(values), bool)
        return np.flatnonzero(far).astype(np.int32)
