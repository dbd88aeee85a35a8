"""The models without a library for GPUs; the parameter `does` of the configuration names the method."""

import json

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.kind = args["model_instance_kind"]
        self.does = json.loads(args["model_config"])["parameters"]["does"]["string_value"]

    def execute(self, requests):
        return [self._answer(pb_utils.get_input_tensor_by_name(request, "IN")) for request in requests]

    def _answer(self, tensor):
        output, report = getattr(self, self.does)(tensor)
        report_tensor = pb_utils.Tensor("REPORT", np.array([json.dumps(report)], dtype=object))
        return pb_utils.InferenceResponse([output, report_tensor])

    def triple(self, tensor):
        output = pb_utils.Tensor("OUT", tensor.as_numpy() * np.float32(3))
        return output, {"kind": self.kind, "is_cpu": tensor.is_cpu()}

    def hand_on(self, tensor):
        """The input as the output, wherever it is."""
        same = pb_utils.Tensor.from_dlpack("OUT", tensor)
        return same, {"is_cpu": tensor.is_cpu(), "out_is_cpu": same.is_cpu()}
