import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        read = [pb_utils.get_input_tensor_by_name(request, "X").as_numpy() for request in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", array + 1)]) for array in read]
