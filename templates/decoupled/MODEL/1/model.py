"""Sends one response for each word of a text (decoupled)."""

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests: "list[pb_utils.InferenceRequest]") -> None:
        for request in requests:
            self.stream(request)

    def stream(self, request: pb_utils.InferenceRequest) -> None:
        sender = request.get_response_sender()
        text = pb_utils.get_input_tensor_by_name(request, "TEXT")
        assert text is not None  # the server checks requests by config.pbtxt
        for word in text.as_numpy()[0].split():
            if sender.is_cancelled():
                break
            output = pb_utils.Tensor("WORD", np.array([word], dtype=object))
            sender.send(pb_utils.InferenceResponse([output]))
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
