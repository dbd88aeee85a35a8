"""Doubles floats, and answers with a tensor on the GPU."""

import envpack_gpu as gpu
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.device = int(args["model_instance_device_id"])

    def execute(self, requests):
        return [self._answer(request) for request in requests]

    def _answer(self, request):
        doubled = gpu.sent_to(pb_utils.get_input_tensor_by_name(request, "IN"), self.device) * 2
        return pb_utils.InferenceResponse([pb_utils.Tensor.from_dlpack("OUT", doubled)])
