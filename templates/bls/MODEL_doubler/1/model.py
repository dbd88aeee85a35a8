"""Doubles an input; MODEL sends its requests here."""

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests: "list[pb_utils.InferenceRequest]") -> "list[pb_utils.InferenceResponse]":
        return [self.respond(request) for request in requests]

    def respond(self, request: pb_utils.InferenceRequest) -> pb_utils.InferenceResponse:
        numbers = pb_utils.get_input_tensor_by_name(request, "X")
        assert numbers is not None  # the server checks requests by config.pbtxt
        return pb_utils.InferenceResponse([pb_utils.Tensor("Y", numbers.as_numpy() * 2)])
