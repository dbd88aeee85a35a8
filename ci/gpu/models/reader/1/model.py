"""Adds 1 on the GPU, and reports where its input was and what instance it is."""

import json

import envpack_gpu as gpu
import numpy as np
import triton_python_backend_utils as pb_utils


def refusal(tensor):
    """The error of as_numpy()."""
    try:
        tensor.as_numpy()
    except pb_utils.TritonModelException as error:
        return str(error)
    return ""


class TritonPythonModel:
    def initialize(self, args):
        self.kind = args["model_instance_kind"]
        self.device = int(args["model_instance_device_id"])

    def execute(self, requests):
        return [self._answer(request) for request in requests]

    def _answer(self, request):
        tensor = pb_utils.get_input_tensor_by_name(request, "IN")
        report = {
            "kind": self.kind,
            "device": self.device,
            "is_cpu": tensor.is_cpu(),
            "dlpack_device": [int(part) for part in tensor.__dlpack_device__()],
            "refusal": refusal(tensor),
        }
        array = gpu.sent_to(tensor, self.device) if tensor.is_cpu() else gpu.view(tensor)
        report["library_on_gpu"] = gpu.is_on_gpu(array)
        report_tensor = np.array([json.dumps(report)], dtype=object)
        tensors = [pb_utils.Tensor.from_dlpack("OUT", array + 1), pb_utils.Tensor("REPORT", report_tensor)]
        return pb_utils.InferenceResponse(tensors)
