"""The power of a signal at each frequency."""

import numpy as np
import triton_python_backend_utils as pb_utils
from scipy import signal


class TritonPythonModel:
    def execute(self, requests: list) -> list:
        return [self.respond(request) for request in requests]

    def respond(self, request):
        values = pb_utils.get_input_tensor_by_name(request, "SIGNAL").as_numpy()
        return pb_utils.InferenceResponse([pb_utils.Tensor("POWER", self.computed(values))])

    def computed(self, values: np.ndarray) -> np.ndarray:
        return signal.periodogram(values)[1].astype(np.float32) if len(values) else np.zeros(0, np.float32)
