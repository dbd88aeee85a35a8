import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """Sends each request to the stage that its first element names."""

    def execute(self, requests):
        return [self.dispatched(request) for request in requests]

    def dispatched(self, request):
        tensor = pb_utils.get_input_tensor_by_name(request, "X")
        stage = f"stage{int(tensor.as_numpy().flat[0])}"
        call = pb_utils.InferenceRequest(model_name=stage, requested_output_names=["Y"], inputs=[tensor])
        answer = call.exec()
        if answer.has_error():
            raise pb_utils.TritonModelException(answer.error().message())
        return pb_utils.InferenceResponse(answer.output_tensors())
