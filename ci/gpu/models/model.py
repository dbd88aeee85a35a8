"""The models with a library for GPUs; the parameter `does` of the configuration names the method."""

import json
import sys
import threading

import c_python_backend_utils
import envpack_gpu as gpu
import numpy as np
import triton_python_backend_utils as pb_utils

MEGABYTES_64 = 64 * 1024 * 1024


def report_tensor(value):
    return pb_utils.Tensor("REPORT", np.array([json.dumps(value)], dtype=object))


def on_gpu(name, array):
    return pb_utils.Tensor.from_dlpack(name, array)


def describe(response):
    """Location and values of another model's output, and that model's own report.

    With a preferred memory on the GPU the report comes there, too, where no library reads bytes.
    """
    if response.has_error():
        return {"error": response.error().message()}
    outputs = {tensor.name(): tensor for tensor in response.output_tensors()}
    seen = json.loads(outputs["REPORT"].as_numpy()[0]) if outputs["REPORT"].is_cpu() else None
    output = outputs["OUT"]
    values = output.as_numpy().tolist() if output.is_cpu() else gpu.listed(gpu.view(output))
    return {"is_cpu": output.is_cpu(), "values": values, "seen": seen}


def refusal(tensor):
    """The error of as_numpy()."""
    try:
        tensor.as_numpy()
    except pb_utils.TritonModelException as error:
        return str(error)
    return ""


class TritonPythonModel:
    def initialize(self, args):
        self.kind = args["model_instance_kind"]
        self.device = int(args["model_instance_device_id"])
        self.does = json.loads(args["model_config"])["parameters"]["does"]["string_value"]
        self.threads = []

    def execute(self, requests):
        answers = [getattr(self, self.does)(request) for request in requests]
        return None if self.does == "send" else [pb_utils.InferenceResponse(tensors) for tensors in answers]

    def finalize(self):
        for thread in self.threads:
            thread.join()

    def produce(self, request):
        """Doubles floats, on the GPU."""
        return [on_gpu("OUT", gpu.sent_to(pb_utils.get_input_tensor_by_name(request, "IN"), self.device) * 2)]

    def read(self, request):
        """Adds 1 on the GPU, and reports where the input was and what instance this is."""
        tensor = pb_utils.get_input_tensor_by_name(request, "IN")
        report = {
            "kind": self.kind,
            "device": self.device,
            "is_cpu": tensor.is_cpu(),
            "dlpack_device": [int(part) for part in tensor.__dlpack_device__()],
            "refusal": refusal(tensor),
        }
        array = gpu.sent_to(tensor, self.device) if tensor.is_cpu() else gpu.view(tensor)
        report["library_on_gpu"] = gpu.is_on_gpu(array)
        return [on_gpu("OUT", array + 1), report_tensor(report)]

    def send(self, request):
        """Sends COUNT responses from a thread."""
        count = int(pb_utils.get_input_tensor_by_name(request, "COUNT").as_numpy()[0])
        thread = threading.Thread(target=self._send, args=(request.get_response_sender(), count))
        self.threads.append(thread)
        thread.start()

    def _send(self, sender, count):
        for number in range(count):
            response = pb_utils.InferenceResponse([on_gpu("OUT", gpu.numbers([number, number + 0.5], self.device))])
            last = number == count - 1
            sender.send(response, flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL if last else 0)

    def types_to_gpu(self, request):
        """Copies each input to the GPU; a type that the library does not know stays in host memory."""
        outputs, unknown = [], {}
        for tensor in request.inputs():
            try:
                outputs.append(on_gpu(tensor.name(), gpu.sent_to(tensor, self.device)))
            except Exception as error:  # libraries differ in what they raise for it
                unknown[tensor.name()] = str(error)
                outputs.append(on_gpu(tensor.name(), tensor))
        return [*outputs, report_tensor(unknown)]

    def types_on_gpu(self, request):
        """Answers with the inputs, after the library has seen each."""
        tensors = request.inputs()
        outputs = [on_gpu(tensor.name(), tensor if tensor.is_cpu() else gpu.view(tensor)) for tensor in tensors]
        return [*outputs, report_tensor({tensor.name(): "host" if tensor.is_cpu() else "gpu" for tensor in tensors})]

    def case(self, request):
        """What the input CASE names: one of the methods below."""
        return getattr(self, pb_utils.get_input_tensor_by_name(request, "CASE").as_numpy()[0].decode())(request)

    def _values(self):
        return gpu.numbers([1, 2, 3], self.device)

    def _infer(self, model, array, memory=None):
        preferred = {"preferred_memory": pb_utils.PreferredMemory(memory, self.device)} if memory is not None else {}
        return pb_utils.InferenceRequest(
            model_name=model, requested_output_names=["OUT", "REPORT"], inputs=[on_gpu("IN", array)], **preferred
        ).exec()

    # Outputs.

    def mixed(self, _):
        host = pb_utils.Tensor("HOST", np.array([7, 8], dtype=np.float32))
        return [on_gpu("OUT", gpu.numbers([4, 5, 6], self.device)), host, report_tensor("and bytes")]

    def empty(self, _):
        return [on_gpu("OUT", gpu.numbers([], self.device)), report_tensor("the other")]

    def large(self, _):
        return [on_gpu("OUT", gpu.count_up(MEGABYTES_64 // 4, self.device) % 1000)]

    def late(self, _):
        tensor, busy = gpu.late(self._values(), 10, lambda array: on_gpu("OUT", array))
        return [tensor, report_tensor({"busy": busy})]

    def late_to_model(self, _):
        """As an input of another model."""
        tensor, busy = gpu.late(self._values(), 10, lambda array: on_gpu("IN", array))
        response = pb_utils.InferenceRequest(
            model_name="reader", requested_output_names=["OUT", "REPORT"], inputs=[tensor]
        ).exec()
        return [report_tensor({"busy": busy, **describe(response)})]

    # Requests to other models.

    def gpu_model_to_gpu(self, _):
        return [report_tensor(describe(self._infer("reader", self._values(), pb_utils.TRITONSERVER_MEMORY_GPU)))]

    def gpu_model_to_cpu(self, _):
        return [report_tensor(describe(self._infer("reader", self._values(), pb_utils.TRITONSERVER_MEMORY_CPU)))]

    def gpu_model(self, _):
        return [report_tensor(describe(self._infer("reader", self._values())))]

    def cpu_model_to_gpu(self, _):
        return [report_tensor(describe(self._infer("host", self._values(), pb_utils.TRITONSERVER_MEMORY_GPU)))]

    def cpu_model_to_cpu(self, _):
        return [report_tensor(describe(self._infer("host", self._values(), pb_utils.TRITONSERVER_MEMORY_CPU)))]

    def empty_to_model(self, _):
        return [report_tensor(describe(self._infer("reader", gpu.numbers([], self.device))))]

    def large_to_model(self, _):
        array = gpu.count_up(MEGABYTES_64 // 4, self.device)
        response = self._infer("reader", array, pb_utils.TRITONSERVER_MEMORY_GPU)
        if response.has_error():
            return [report_tensor({"error": response.error().message()})]
        output = pb_utils.get_output_tensor_by_name(response, "OUT")
        values = gpu.sent_to(output, self.device) if output.is_cpu() else gpu.view(output)
        right = gpu.equal(values, array + 1)
        return [report_tensor({"is_cpu": output.is_cpu(), "right": right})]

    def other_device(self, _):
        return [report_tensor(describe(self._infer("reader_on_1", self._values(), pb_utils.TRITONSERVER_MEMORY_GPU)))]

    def stream(self, _):
        responses = pb_utils.InferenceRequest(
            model_name="stream",
            requested_output_names=["OUT"],
            inputs=[pb_utils.Tensor("COUNT", np.array([5], dtype=np.int32))],
            preferred_memory=pb_utils.PreferredMemory(pb_utils.TRITONSERVER_MEMORY_GPU, self.device),
        ).exec(decoupled=True)
        seen = []
        for response in responses:
            if response.has_error():
                seen.append({"error": response.error().message()})
            elif response.output_tensors():
                output = response.output_tensors()[0]
                seen.append({"is_cpu": output.is_cpu(), "values": gpu.listed(gpu.view(output))})
        return [report_tensor(seen)]

    # What is held.

    def references(self, _):
        tensor = on_gpu("OUT", self._values())
        before = sys.getrefcount(tensor)
        capsule = tensor.to_dlpack()
        during = sys.getrefcount(tensor)
        del capsule
        viewed = gpu.view(tensor)
        consumed = sys.getrefcount(tensor)
        del viewed
        return [report_tensor([before, during, consumed, sys.getrefcount(tensor)])]

    def give_back(self, _):
        """Make tensors and requests and let go of them; a megabyte each, so that none is lost in what is rounded."""
        before = gpu.allocated(self.device)
        for _ in range(20):
            array = gpu.count_up(1 << 18, self.device)
            response = self._infer("reader", array, pb_utils.TRITONSERVER_MEMORY_GPU)
            if response.has_error():
                return [report_tensor({"error": response.error().message()})]
            gpu.view(pb_utils.get_output_tensor_by_name(response, "OUT"))
        del array, response
        return [report_tensor({"before": before, "after": gpu.allocated(self.device)})]

    def megabytes(self, _):
        """One answer and one request of 4 MB each, to be requested repeatedly."""
        array = gpu.count_up(1 << 20, self.device)
        response = self._infer("reader", array, pb_utils.TRITONSERVER_MEMORY_GPU)
        return [on_gpu("OUT", array[:2] + 1), report_tensor({"error": response.has_error()})]

    def held(self, _):
        free = c_python_backend_utils.shared_memory.free_memory()
        return [report_tensor({"allocated": gpu.allocated(self.device), "free": free})]
