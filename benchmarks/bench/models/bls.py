"""Sends a BLS call to the model that the configuration names, and returns the response."""

import json

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.target = json.loads(args["model_config"])["parameters"]["target"]["string_value"]

    def execute(self, requests):
        return [self._respond(request) for request in requests]

    def _respond(self, request):
        array = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()
        inner = pb_utils.InferenceRequest(
            model_name=self.target, requested_output_names=["OUT"], inputs=[pb_utils.Tensor("IN", array)]
        )
        response = inner.exec()
        if response.has_error():
            raise pb_utils.TritonModelException(response.error().message())
        output = pb_utils.get_output_tensor_by_name(response, "OUT").as_numpy()
        return pb_utils.InferenceResponse(output_tensors=[pb_utils.Tensor("OUT", output)])
