// Tensors on GPUs, with a fake driver whose device memory both processes can access.
#include <cstring>
#include <memory>
#include <thread>

#include "check.h"
#include "running_stub.h"

using namespace envpack::test;

extern "C" {
int cuInit(unsigned flags);
int cuDevicePrimaryCtxRetain(void** context, int device);
int cuCtxPushCurrent_v2(void* context);
int cuMemAlloc_v2(std::uint64_t* pointer, std::size_t size);
int cuMemFree_v2(std::uint64_t pointer);
int cuIpcGetMemHandle(void* handle, std::uint64_t pointer);
}

namespace {

// Without a GPU library, the model creates its GPU tensors itself: DLPack capsules over NumPy's memory, which
// the fake driver accepts as device memory.
constexpr char kGpuModel[] = R"(
import ctypes
import gc
import numpy as np
import triton_python_backend_utils as pb_utils

cuda = ctypes.CDLL("libcuda.so.1")
api = ctypes.pythonapi
api.PyCapsule_GetPointer.restype = ctypes.c_void_p
api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
api.PyCapsule_New.restype = ctypes.py_object
api.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


class View(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
                ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
                ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.c_void_p), ("byte_offset", ctypes.c_uint64)]


class Managed(ctypes.Structure):
    _fields_ = [("view", View), ("context", ctypes.c_void_p), ("deleter", ctypes.CFUNCTYPE(None, ctypes.c_void_p))]


class OnGpu:
    """Floats on a device, like a tensor of PyTorch or CuPy."""

    live = 0
    streams = []
    made = []  # whose memory lives as long as the process

    def __init__(self, values, device=0):
        self.array = np.array(values, dtype=np.float32)
        self.device = device
        OnGpu.made.append(self)

    def __dlpack_device__(self):
        return (2, self.device)

    def __dlpack__(self, stream=None):
        OnGpu.streams.append(stream)
        OnGpu.live += 1
        record = Managed()
        shape = (ctypes.c_int64 * 1)(self.array.size)
        record.view = View(self.array.ctypes.data, 2, self.device, 1, 2, 32, 1, shape, None, 0)
        record.deleter = type(record.deleter)(self.delete)
        self.keep = (record, shape)
        return api.PyCapsule_New(ctypes.addressof(record), b"dltensor", None)

    def delete(self, _):
        OnGpu.live -= 1


def floats(tensor):
    """The values of a tensor on the fake device, through DLPack."""
    capsule = tensor.to_dlpack()
    view = Managed.from_address(api.PyCapsule_GetPointer(capsule, b"dltensor")).view
    assert (view.device_type, view.device_id) == tensor.__dlpack_device__()
    count = int(np.prod(tensor.shape()))
    return np.ctypeslib.as_array((ctypes.c_float * count).from_address(view.data)).copy()


def response_of(*values):
    return pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([str(v) for v in values], dtype=object))])


kept = []


class TritonPythonModel:
    def execute(self, requests):
        return getattr(self, requests[0].request_id())(requests)

    def read(self, requests):
        tensor = requests[0].inputs()[0]
        try:
            tensor.as_numpy()
        except pb_utils.TritonModelException as error:
            return [response_of(tensor.is_cpu(), tensor.__dlpack_device__()[1], floats(tensor).tolist(), error)]

    def unreachable(self, requests):
        try:
            requests[0].inputs()[0].to_dlpack()
        except pb_utils.TritonModelException as error:
            return [response_of(error)]

    def state(self, requests):
        gc.collect()
        return [response_of(cuda.fake_cuda_open_handles(), OnGpu.live, cuda.fake_cuda_contexts(0), cuda.fake_cuda_contexts(1),
                     cuda.fake_cuda_synchronized_streams(), len([s for s in OnGpu.streams if not s]))]

    def three_outputs(self, requests):
        return [pb_utils.InferenceResponse([
            pb_utils.Tensor.from_dlpack("A", OnGpu([1, 2, 3])),
            pb_utils.Tensor("HOST", np.ones(2, dtype=np.float32)),
            pb_utils.Tensor.from_dlpack("B", OnGpu([4, 5])),
            pb_utils.Tensor.from_dlpack("C", OnGpu([6])),
        ])]

    def forward(self, requests):
        return [pb_utils.InferenceResponse([pb_utils.Tensor.from_dlpack("OUT", requests[0].inputs()[0])])]

    def send(self, requests):
        sender = requests[0].get_response_sender()
        try:
            sender.send(pb_utils.InferenceResponse([pb_utils.Tensor.from_dlpack("A", OnGpu([7, 8]))]), flags=1)
        except pb_utils.TritonModelException as error:
            kept.append(str(error))

    def errors(self, requests):
        return [response_of(*kept)]

    def infer(self, requests):
        request = pb_utils.InferenceRequest(
            model_name="other", inputs=[pb_utils.Tensor.from_dlpack("X", OnGpu([9, 10], device=1))],
            requested_output_names=["Y"])
        response = request.exec()
        if response.has_error():
            return [response_of(response.error().message())]
        output = response.output_tensors()[0]
        return [response_of(output.is_cpu(), floats(output).tolist())]
)";

// Device memory of the server.
class DeviceBytes {
 public:
  explicit DeviceBytes(const std::string& bytes) : size_(bytes.size()) {
    static const bool ready = [] {
      void* context = nullptr;
      return cuInit(0) == 0 && cuDevicePrimaryCtxRetain(&context, 0) == 0 &&
             cuCtxPushCurrent_v2(context) == 0;
    }();
    CHECK(ready);
    CHECK_EQ(cuMemAlloc_v2(&pointer_, size_), 0);
    std::memcpy(reinterpret_cast<void*>(pointer_), bytes.data(), size_);
  }
  ~DeviceBytes() { cuMemFree_v2(pointer_); }
  DeviceBytes(const DeviceBytes&) = delete;
  DeviceBytes& operator=(const DeviceBytes&) = delete;

  std::string Handle() const {
    std::string handle(64, '\0');
    CHECK_EQ(cuIpcGetMemHandle(handle.data(), pointer_), 0);
    return handle;
  }
  std::string Read(std::size_t offset, std::size_t size) const {
    return {reinterpret_cast<const char*>(pointer_) + offset, size};
  }

 private:
  std::uint64_t pointer_ = 0;
  std::size_t size_;
};

struct GpuStub : RunningStub {
  GpuStub() : RunningStub(kGpuModel, {true, true, "1048576", 0}, Peer::Options{}) {
    CHECK_EQ(Initialize().value_or(""), "");
  }
  // The values in the model's response.
  std::vector<std::string> Values(const ExecuteAnswer& answer) {
    CHECK_EQ(answer.error.value_or(""), "");
    const std::string& bytes = answer.responses.at(0).outputs.at(0).bytes;
    std::vector<std::string> texts;
    for (std::size_t at = 0; at < bytes.size();) {
      std::uint32_t length = 0;
      std::memcpy(&length, &bytes.at(at), sizeof(length));
      texts.push_back(bytes.substr(at + sizeof(length), length));
      at += sizeof(length) + length;
    }
    return texts;
  }
  std::vector<std::string> Call(const std::string& method, const PeerTensor& tensor = kTwoFloats) {
    return Values(Execute({RequestOf(method, tensor)}));
  }
};

PeerTensor InAllocation(const std::string& handle, std::size_t bytes, std::uint64_t offset, int device = 0) {
  return {"IN",
          11,
          {static_cast<std::int64_t>(bytes / 4)},
          std::string(bytes, '\0'),
          false,
          PeerDevice{device, offset, false, handle, 0}};
}

PeerTensor InPool(std::size_t bytes, std::uint64_t offset, int device = 0) {
  return {"IN",
          11,
          {static_cast<std::int64_t>(bytes / 4)},
          std::string(bytes, '\0'),
          false,
          PeerDevice{device, offset, true, "", 0}};
}

}  // namespace

CASE(gpu_input_by_handle_is_opened_while_it_is_used) {
  GpuStub stub;
  const DeviceBytes memory(Floats({0, 0, 1.5, 2.5}));
  const auto values = stub.Call("read", InAllocation(memory.Handle(), 8, 8, 1));
  CHECK_EQ(values.at(0), "False");
  CHECK_EQ(values.at(1), "1");
  CHECK_EQ(values.at(2), "[1.5, 2.5]");
  CHECK_EQ(values.at(3), "Tensor is stored in GPU and cannot be converted to NumPy.");
  const auto state = stub.Call("state");
  CHECK_EQ(state.at(0), "0");  // closed again
  CHECK_EQ(state.at(2), "0");  // no context on an unused device
  CHECK_EQ(state.at(3), "1");
}

CASE(gpu_two_inputs_of_one_allocation_open_it_once) {
  GpuStub stub;
  const DeviceBytes memory(Floats({1, 2, 3, 4}));
  PeerRequest request = RequestOf("read", InAllocation(memory.Handle(), 8, 8));
  request.inputs.push_back(InAllocation(memory.Handle(), 8, 0));
  CHECK_EQ(stub.Values(stub.Execute({request})).at(2), "[3.0, 4.0]");
  CHECK_EQ(stub.Call("state").at(0), "0");
}

CASE(gpu_input_in_the_pool) {
  GpuStub stub;
  const DeviceBytes pool(Floats({0, 0, 0, 7, 8}));
  CHECK(!stub.peer.OfferCudaPool(pool.Handle()));
  CHECK_EQ(stub.Call("read", InPool(8, 12)).at(2), "[7.0, 8.0]");
}

CASE(gpu_pool_that_cannot_be_opened_is_rejected_with_a_reason) {
  GpuStub stub;
  CHECK_HAS(stub.peer.OfferCudaPool("junk").value_or(""), "fake: invalid handle");
  CHECK_HAS(stub.peer.OfferCudaPool("junk", 9).value_or(""), "fake: invalid device");
  CHECK_HAS(stub.Call("unreachable", InPool(8, 0)).at(0), "memory pool of device 0 is not open");
}

CASE(gpu_input_that_cannot_be_opened_fails_where_it_is_used) {
  GpuStub stub;
  CHECK_HAS(stub.Call("unreachable", InAllocation("junk", 8, 0)).at(0), "fake: invalid handle");
}

CASE(gpu_input_without_a_driver_fails_where_it_is_used) {
  std::string model = kGpuModel;
  const std::string load = "cuda = ctypes.CDLL(\"libcuda.so.1\")";
  model.replace(model.find(load), load.size(), "");
  RunningStub stub(model);
  CHECK_EQ(stub.Initialize().value_or(""), "");
  const auto answer = stub.Execute({RequestOf("unreachable", InAllocation("", 8, 0))});
  CHECK_HAS(answer.responses.at(0).outputs.at(0).bytes, "there is no CUDA driver");
}

CASE(gpu_outputs_are_copied_to_the_servers_buffers) {
  GpuStub stub;
  const DeviceBytes pool(std::string(64, '\0'));
  const DeviceBytes memory(std::string(64, '\0'));
  CHECK(!stub.peer.OfferCudaPool(pool.Handle()));
  const auto answer = stub.Execute({RequestOf("three_outputs", kTwoFloats)});
  const auto& outputs = answer.responses.at(0).outputs;
  CHECK_EQ(outputs.size(), 4u);
  CHECK(outputs.at(0).device && !outputs.at(1).device && outputs.at(2).device);
  CHECK(outputs.at(1).bytes == Floats({1, 1}));
  CHECK_EQ(outputs.at(2).bytes.size(), 8u);
  const PeerTensor host{"", 11, {1}, std::string(4, '\0')};
  const auto buffers = stub.peer.MakeGpuBuffers({InAllocation(memory.Handle(), 12, 16), InPool(8, 32), host});
  stub.peer.SendLoadGpuBuffers(buffers);
  CHECK(memory.Read(16, 12) == Floats({1, 2, 3}));
  CHECK(pool.Read(32, 8) == Floats({4, 5}));
  CHECK(stub.peer.ReadBuffer(buffers, 2) == Floats({6}));
  stub.peer.Drop();
  const auto state = stub.Call("state");
  CHECK_EQ(state.at(0), "1");  // the pool
  CHECK_EQ(state.at(1), "0");  // the producers' memory is released
  CHECK_EQ(state.at(4), "3");  // waited for each producer on the stub's stream
  CHECK_EQ(state.at(5), "0");
}

CASE(gpu_buffers_that_do_not_match_are_reported_and_the_server_continues) {
  GpuStub stub;
  for (const std::string& error : {std::string(), std::string("no memory")}) {
    stub.Execute({RequestOf("three_outputs", kTwoFloats)});
    const PeerTensor host{"", 11, {1}, std::string(4, '\0')};
    stub.peer.SendLoadGpuBuffers(stub.peer.MakeGpuBuffers({host}, error));
    stub.peer.Drop();
  }
  CHECK_EQ(stub.Call("state").at(1), "0");
  CHECK_HAS(stub.stub.Output(), "GPU buffers size does not match the provided buffers: 3 != 1");
  CHECK_HAS(stub.stub.Output(), "Failed to load GPU buffers: no memory");
}

CASE(gpu_input_is_forwarded_without_a_copy) {
  GpuStub stub;
  const DeviceBytes memory(Floats({1, 2}));
  const auto answer = stub.Execute({RequestOf("forward", InAllocation(memory.Handle(), 8, 0))});
  CHECK(answer.responses.at(0).outputs.at(0).device.has_value());
  const PeerTensor host{"", 11, {2}, std::string(8, '\0')};
  const auto buffers = stub.peer.MakeGpuBuffers({host});
  stub.peer.SendLoadGpuBuffers(buffers);
  CHECK(stub.peer.ReadBuffer(buffers, 0) == Floats({1, 2}));
  stub.peer.Drop();
  CHECK_EQ(stub.Call("state").at(0), "0");
}

CASE(gpu_output_of_a_sender) {
  GpuStub stub;
  const DeviceBytes memory(std::string(8, '\0'));
  PeerRequest request = RequestOf("send", kTwoFloats);
  request.response_factory = 5;
  const auto buffers = stub.peer.MakeGpuBuffers({InAllocation(memory.Handle(), 8, 0)});
  stub.SkipReport();
  stub.peer.SendExecute({request});
  const auto sent = stub.peer.TakeSent("", buffers);
  CHECK(sent.response->outputs.at(0).device.has_value());
  CHECK(memory.Read(0, 8) == Floats({7, 8}));
  stub.peer.TakeExecute();
  stub.peer.SendExecute({request});
  stub.peer.TakeSent("", stub.peer.MakeGpuBuffers({}, "no memory"));
  stub.peer.TakeExecute();
  stub.peer.Drop();
  CHECK_EQ(stub.Call("errors").at(0), "Failed to load GPU buffers: no memory");
  CHECK_EQ(stub.Call("state").at(1), "0");
}

CASE(gpu_tensors_of_a_bls_request) {
  GpuStub stub;
  stub.SkipReport();
  const DeviceBytes input(std::string(8, '\0'));
  const DeviceBytes output(Floats({11, 12}));
  PeerTensor answer = InAllocation(output.Handle(), 8, 0);
  answer.separate = true;
  answer.device->release_id = 4711;
  const auto buffers = stub.peer.MakeGpuBuffers({InAllocation(input.Handle(), 8, 0, 1)});
  stub.peer.SendExecute({RequestOf("infer", kTwoFloats)});
  const PeerInferRequest bls = stub.peer.ServeInfer({{answer}, std::nullopt, 0}, buffers);
  CHECK_EQ(bls.model, "other");
  CHECK_EQ(bls.inputs.at(0).device->device, 1);
  CHECK(input.Read(0, 8) == Floats({9, 10}));
  const auto values = stub.Values(stub.peer.TakeExecute());
  CHECK_EQ(values.at(0), "False");
  CHECK_EQ(values.at(1), "[11.0, 12.0]");
  CHECK_EQ(stub.peer.memory_manager.Pop(), 4711);
  stub.peer.Drop();
  CHECK_EQ(stub.Call("state").at(0), "0");
}

CASE(gpu_buffers_of_a_bls_request_may_fail) {
  GpuStub stub;
  stub.SkipReport();
  stub.peer.SendExecute({RequestOf("infer", kTwoFloats)});
  stub.peer.ServeInfer({{}, "unused", 0}, stub.peer.MakeGpuBuffers({}, "no memory"));
  CHECK_EQ(stub.Values(stub.peer.TakeExecute()).at(0), "Failed to load GPU buffers: no memory");
  stub.peer.Drop();
}
