"""Copies each input to the GPU; a type that the library does not know goes on in host memory and is reported."""

import json

import envpack_gpu as gpu
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.device = int(args["model_instance_device_id"])

    def execute(self, requests):
        return [self._answer(request) for request in requests]

    def _answer(self, request):
        outputs, unknown = [], {}
        for tensor in request.inputs():
            try:
                outputs.append(pb_utils.Tensor.from_dlpack(tensor.name(), gpu.sent_to(tensor, self.device)))
            except Exception as error:  # libraries differ in what they raise for it
                unknown[tensor.name()] = str(error)
                outputs.append(pb_utils.Tensor.from_dlpack(tensor.name(), tensor))
        report_tensor = pb_utils.Tensor("REPORT", np.array([json.dumps(unknown)], dtype=object))
        return pb_utils.InferenceResponse([*outputs, report_tensor])
