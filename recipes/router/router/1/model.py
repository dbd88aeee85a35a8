"""Sends each request to one of two models, and to the other one if that fails."""

import asyncio
import json
import zlib

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args: dict):
        parameters = json.loads(args["model_config"])["parameters"]
        self.percent = int(parameters["candidate_percent"]["string_value"])
        self.family = pb_utils.MetricFamily(
            name="routed_requests_total",
            description="Requests that the router has sent, by model",
            kind=pb_utils.MetricFamily.COUNTER,
        )
        self.counters = {name: self.family.Metric(labels={"model": name}) for name in ("stable", "candidate")}

    async def execute(self, requests: list) -> list:
        return await asyncio.gather(*(self.respond(request) for request in requests))

    async def respond(self, request):
        key = pb_utils.get_input_tensor_by_name(request, "KEY").as_numpy()[0]
        amounts = pb_utils.get_input_tensor_by_name(request, "AMOUNTS")
        name = "candidate" if zlib.crc32(key) % 100 < self.percent else "stable"
        answer = await self.send(name, amounts)
        if answer.has_error() and name == "candidate":
            pb_utils.Logger.log_warn(f"candidate failed: {answer.error().message()}")
            name = "stable"
            answer = await self.send(name, amounts)
        if answer.has_error():
            return pb_utils.InferenceResponse(error=answer.error())
        risk = pb_utils.get_output_tensor_by_name(answer, "RISK")
        model = pb_utils.Tensor("MODEL", np.array([name.encode()], dtype=np.object_))
        return pb_utils.InferenceResponse([risk, model])

    async def send(self, name: str, amounts):
        self.counters[name].increment(1)
        request = pb_utils.InferenceRequest(model_name=name, inputs=[amounts], requested_output_names=["RISK"])
        return await request.async_exec()
