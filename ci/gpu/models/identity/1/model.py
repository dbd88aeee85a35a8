"""Answers with its input, wherever that is, and without a library."""

import json

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self._answer(request) for request in requests]

    def _answer(self, request):
        tensor = pb_utils.get_input_tensor_by_name(request, "IN")
        same = pb_utils.Tensor.from_dlpack("OUT", tensor)
        report = {"is_cpu": tensor.is_cpu(), "out_is_cpu": same.is_cpu()}
        report_tensor = pb_utils.Tensor("REPORT", np.array([json.dumps(report)], dtype=object))
        return pb_utils.InferenceResponse([same, report_tensor])
