"""The model that probes the GPU. It runs in the environment of a user's model, on Python 3.8 and later.

This file is served twice. ``envpack_gpu_probe`` creates a tensor on the GPU, sends it to ``envpack_gpu_probe_peer``,
which must receive it on the GPU too, and compares the result. Each tensor's own ``is_cpu`` decides where it is.
"""

import json

import triton_python_backend_utils as pb_utils

PEER = "envpack_gpu_probe_peer"


class _WithTorch:
    name = "PyTorch"

    def __init__(self):
        import torch

        self.torch = torch
        self.available = torch.cuda.is_available()

    def ramp(self, count):
        return self.torch.arange(count, dtype=self.torch.float32, device="cuda")

    def take(self, tensor):
        return self.torch.utils.dlpack.from_dlpack(tensor.to_dlpack())

    def device(self):
        return self.torch.cuda.get_device_name(0)


class _WithCupy:
    name = "CuPy"

    def __init__(self):
        import cupy

        self.cupy = cupy
        self.available = cupy.cuda.runtime.getDeviceCount() > 0

    def ramp(self, count):
        return self.cupy.arange(count, dtype=self.cupy.float32)

    def take(self, tensor):
        return self.cupy.from_dlpack(tensor.to_dlpack())

    def device(self):
        return self.cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()


def _library():
    for kind in (_WithTorch, _WithCupy):
        try:
            return kind()
        except ImportError:
            continue
    raise RuntimeError("neither PyTorch nor CuPy can be imported")


class TritonPythonModel:
    def initialize(self, args):
        self.is_peer = args["model_name"].endswith(PEER)
        self.kind = args["model_instance_kind"]
        self.device = args["model_instance_device_id"]
        self.library = _library()
        if not self.library.available:
            raise RuntimeError(self.library.name + " finds no GPU")

    def execute(self, requests):
        return [self._doubled(request) if self.is_peer else self._probed(request) for request in requests]

    def _doubled(self, request):
        """The peer: returns twice the tensor, which must arrive and leave on the GPU."""
        tensor = pb_utils.get_input_tensor_by_name(request, "IN")
        if tensor.is_cpu():
            raise RuntimeError("a GPU tensor of another model arrived in host memory")
        doubled = self.library.take(tensor) * 2
        return pb_utils.InferenceResponse([pb_utils.Tensor.from_dlpack("OUT", doubled)])

    def _probed(self, request):
        count = int(pb_utils.get_input_tensor_by_name(request, "COUNT").as_numpy().ravel()[0])
        sent = pb_utils.Tensor.from_dlpack("IN", self.library.ramp(count))
        call = pb_utils.InferenceRequest(
            model_name=PEER,
            inputs=[sent],
            requested_output_names=["OUT"],
            preferred_memory=pb_utils.PreferredMemory(pb_utils.TRITONSERVER_MEMORY_GPU, 0),
        )
        answer = call.exec()
        if answer.has_error():
            raise RuntimeError(answer.error().message())
        returned = pb_utils.get_output_tensor_by_name(answer, "OUT")
        equal = bool((self.library.take(returned) == self.library.ramp(count) * 2).all())
        report = {
            "library": self.library.name,
            "device": self.library.device(),
            "kind": self.kind,
            "sent_on_gpu": not sent.is_cpu(),
            "returned_on_gpu": not returned.is_cpu(),
            "equal": equal,
        }
        import numpy

        text = numpy.array([json.dumps(report).encode()], dtype=object)
        return pb_utils.InferenceResponse([pb_utils.Tensor("REPORT", text)])
