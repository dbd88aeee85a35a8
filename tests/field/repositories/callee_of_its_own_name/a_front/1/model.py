import asyncio

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """One front for each model: ``a_front`` is that of ``a_back``."""

    def initialize(self, args):
        self.back = args["model_name"].replace("front", "back")

    async def execute(self, requests):
        return await asyncio.gather(*(self.forwarded(request) for request in requests))

    async def forwarded(self, request):
        call = pb_utils.InferenceRequest(
            model_name=self.back, requested_output_names=["Y"], inputs=list(request.inputs())
        )
        answer = await call.async_exec()
        if answer.has_error():
            return pb_utils.InferenceResponse(error=answer.error())
        return pb_utils.InferenceResponse(answer.output_tensors())
