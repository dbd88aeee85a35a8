"""Answers with its inputs, after the library has seen each, and reports which are on the GPU."""

import json

import envpack_gpu as gpu
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self._answer(request) for request in requests]

    def _answer(self, request):
        outputs, report = [], {}
        for tensor in request.inputs():
            report[tensor.name()] = "host" if tensor.is_cpu() else "gpu"
            seen = tensor if tensor.is_cpu() else gpu.view(tensor)
            outputs.append(pb_utils.Tensor.from_dlpack(tensor.name(), seen))
        report_tensor = pb_utils.Tensor("REPORT", np.array([json.dumps(report)], dtype=object))
        return pb_utils.InferenceResponse([*outputs, report_tensor])
