"""Sends as many responses as the request specifies."""

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            self._send(request.get_response_sender(), pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()[0])

    def _send(self, sender, count):
        for number in range(count):
            tensor = pb_utils.Tensor("OUT", np.array([number], np.int32))
            sender.send(pb_utils.InferenceResponse(output_tensors=[tensor]))
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
