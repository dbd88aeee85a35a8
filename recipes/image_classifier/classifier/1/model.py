"""Images to scores: one call of the network for each batch, without a copy of inputs or outputs."""

from pathlib import Path

import numpy as np
import torch
import triton_python_backend_utils as pb_utils
from envpack_tensors import empty_tensor
from network import Network


class TritonPythonModel:
    def initialize(self, args: dict):
        on_gpu = args["model_instance_kind"] == "GPU"
        self.device = torch.device(f"cuda:{args['model_instance_device_id']}" if on_gpu else "cpu")
        weights = torch.load(Path(__file__).with_name("weights.pt"), map_location=self.device, weights_only=True)
        self.network = Network().to(self.device).eval()
        self.network.load_state_dict(weights)

    def execute(self, requests: list) -> list:
        images = [self.read(request) for request in requests]
        with torch.inference_mode():
            logits = self.network(torch.cat(images))
            parts = logits.split([len(part) for part in images])
            return [pb_utils.InferenceResponse([self.scores(part)]) for part in parts]

    def read(self, request) -> torch.Tensor:
        tensor = pb_utils.get_input_tensor_by_name(request, "IMAGE")
        return torch.from_dlpack(tensor).to(self.device)

    def scores(self, logits: torch.Tensor):
        if self.device.type == "cuda":
            return pb_utils.Tensor.from_dlpack("SCORES", logits.softmax(dim=1))
        tensor = empty_tensor("SCORES", logits.shape, np.float32)
        torch.softmax(logits, dim=1, out=torch.from_numpy(tensor.as_numpy()))
        return tensor
