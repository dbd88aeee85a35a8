"""Sends COUNT responses with tensors on the GPU from a thread; the decoupled variant has the same code."""

import threading

import envpack_gpu as gpu
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.device = int(args["model_instance_device_id"])
        self.threads = []

    def execute(self, requests):
        for request in requests:
            count = int(pb_utils.get_input_tensor_by_name(request, "COUNT").as_numpy()[0])
            thread = threading.Thread(target=self._send, args=(request.get_response_sender(), count))
            self.threads.append(thread)
            thread.start()

    def _send(self, sender, count):
        for number in range(count):
            array = gpu.numbers([number, number + 0.5], self.device)
            response = pb_utils.InferenceResponse([pb_utils.Tensor.from_dlpack("OUT", array)])
            last = number == count - 1
            sender.send(response, flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL if last else 0)

    def finalize(self):
        for thread in self.threads:
            thread.join()
