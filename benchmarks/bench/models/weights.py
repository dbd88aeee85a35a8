"""Creates weights of 500 MB in initialize(), and returns its input."""

import numpy
import triton_python_backend_utils as pb_utils

BYTES = 500_000_000


class TritonPythonModel:
    def initialize(self, args):  # noqa: ARG002 - the server's interface
        self.weights = numpy.full(BYTES // 4, 1.5, dtype=numpy.float32)

    def execute(self, requests):
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", r.inputs()[0].as_numpy())]) for r in requests]
