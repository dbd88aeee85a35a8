"""Runs a PyTorch module on all requests of a batch at once, on a GPU if there is one."""

import torch
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args: "dict[str, str]") -> None:
        on_gpu = args["model_instance_kind"] == "GPU"
        self.device = torch.device(f"cuda:{args['model_instance_device_id']}" if on_gpu else "cpu")
        torch.manual_seed(0)
        self.module = torch.nn.Linear(4, 2).to(self.device).eval()  # in place of what you have trained

    def execute(self, requests: "list[pb_utils.InferenceRequest]") -> "list[pb_utils.InferenceResponse]":
        batches = [self.read(request) for request in requests]
        with torch.inference_mode():
            scores = self.module(torch.cat(batches)).split([len(batch) for batch in batches])
        return [pb_utils.InferenceResponse([pb_utils.Tensor.from_dlpack("Y", part)]) for part in scores]

    def read(self, request: pb_utils.InferenceRequest) -> torch.Tensor:
        numbers = pb_utils.get_input_tensor_by_name(request, "X")
        assert numbers is not None  # the server checks requests by config.pbtxt
        return torch.from_dlpack(numbers).to(self.device)
