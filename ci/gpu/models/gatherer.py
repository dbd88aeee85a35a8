"""Asks another model COUNT times at once, with tensors on the GPU in both directions."""

import asyncio
import json

import envpack_gpu as gpu
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.device = int(args["model_instance_device_id"])

    async def execute(self, requests):
        return [await self._answer(request) for request in requests]

    async def _answer(self, request):
        count = int(pb_utils.get_input_tensor_by_name(request, "COUNT").as_numpy()[0])
        responses = await asyncio.gather(*(self._infer(number) for number in range(count)))
        reports = [self._seen(response) for response in responses]
        return pb_utils.InferenceResponse([pb_utils.Tensor("REPORT", np.array([json.dumps(reports)], dtype=object))])

    def _infer(self, number):
        array = gpu.numbers([number, number * 10], self.device)
        return pb_utils.InferenceRequest(
            model_name="reader",
            requested_output_names=["OUT"],
            inputs=[pb_utils.Tensor.from_dlpack("IN", array)],
            preferred_memory=pb_utils.PreferredMemory(pb_utils.TRITONSERVER_MEMORY_GPU, self.device),
        ).async_exec()

    def _seen(self, response):
        if response.has_error():
            return {"error": response.error().message()}
        output = response.output_tensors()[0]
        return {"is_cpu": output.is_cpu(), "values": gpu.listed(gpu.view(output))}
