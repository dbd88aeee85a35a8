"""A model whose types are checked by the stubs that envpack ships."""

import asyncio
import json
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config: pb_utils.ModelConfig) -> pb_utils.ModelConfig:
        config.set_max_batch_size(8)
        return config

    def initialize(self, args: dict[str, str]) -> None:
        self.config: dict[str, Any] = json.loads(args["model_config"])
        family = pb_utils.MetricFamily("served", "Requests served", pb_utils.MetricFamily.COUNTER)
        self.served = family.Metric(labels={"model": args["model_name"]})

    async def ask(self, tensor: pb_utils.Tensor) -> pb_utils.InferenceResponse:
        request = pb_utils.InferenceRequest(
            model_name="other",
            inputs=[tensor],
            requested_output_names=["Y"],
            preferred_memory=pb_utils.PreferredMemory(pb_utils.TRITONSERVER_MEMORY_CPU),
        )
        responses = await asyncio.gather(request.async_exec(), request.async_exec())
        return responses[0]

    def execute(self, requests: list[pb_utils.InferenceRequest]) -> list[pb_utils.InferenceResponse | None]:
        responses: list[pb_utils.InferenceResponse | None] = []
        for request in requests:
            tensor = pb_utils.get_input_tensor_by_name(request, "X")
            if tensor is None:
                error = pb_utils.TritonError("X is missing", pb_utils.TritonError.INVALID_ARG)
                responses.append(pb_utils.InferenceResponse(error=error))
                continue
            output = pb_utils.Tensor.empty("Y", tensor.shape(), np.float32)
            np.multiply(tensor.as_numpy(), 2, out=output.as_numpy())
            self.served.increment(1)
            responses.append(pb_utils.InferenceResponse([output]))
        return responses
