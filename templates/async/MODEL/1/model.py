"""Waits for several services at the same time (coroutines)."""

import asyncio

import numpy as np
import triton_python_backend_utils as pb_utils


async def look_up(number: float) -> float:
    await asyncio.sleep(0.01)  # in place of a database or another service
    return number + 1


class TritonPythonModel:
    async def execute(self, requests: "list[pb_utils.InferenceRequest]") -> "list[pb_utils.InferenceResponse]":
        return list(await asyncio.gather(*map(self.respond, requests)))

    async def respond(self, request: pb_utils.InferenceRequest) -> pb_utils.InferenceResponse:
        numbers = pb_utils.get_input_tensor_by_name(request, "X")
        assert numbers is not None  # the server checks requests by config.pbtxt
        found = await asyncio.gather(*map(look_up, numbers.as_numpy().tolist()))
        return pb_utils.InferenceResponse([pb_utils.Tensor("Y", np.array(found, dtype=np.float32))])
