"""Sends a request to another model and adds 1 to its answer (business logic scripting)."""

import json

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args: "dict[str, str]") -> None:
        config = json.loads(args["model_config"])
        self.other = config["parameters"]["other_model"]["string_value"]

    def execute(self, requests: "list[pb_utils.InferenceRequest]") -> "list[pb_utils.InferenceResponse]":
        return [self.respond(request) for request in requests]

    def respond(self, request: pb_utils.InferenceRequest) -> pb_utils.InferenceResponse:
        call = pb_utils.InferenceRequest(model_name=self.other, inputs=request.inputs(), requested_output_names=["Y"])
        answer = call.exec()
        if answer.has_error():
            return pb_utils.InferenceResponse(error=answer.error())
        numbers = pb_utils.get_output_tensor_by_name(answer, "Y")
        assert numbers is not None  # it was requested
        return pb_utils.InferenceResponse([pb_utils.Tensor("Y", numbers.as_numpy() + 1)])
