"""Triples floats and never touches a GPU."""

import json

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.kind = args["model_instance_kind"]

    def execute(self, requests):
        return [self._answer(request) for request in requests]

    def _answer(self, request):
        tensor = pb_utils.get_input_tensor_by_name(request, "IN")
        report = {"kind": self.kind, "is_cpu": tensor.is_cpu()}
        report_tensor = np.array([json.dumps(report)], dtype=object)
        tensors = [pb_utils.Tensor("OUT", tensor.as_numpy() * np.float32(3)), pb_utils.Tensor("REPORT", report_tensor)]
        return pb_utils.InferenceResponse(tensors)
