// Tensors on GPUs on the wire of every epoch. Their bytes lie in a device, which is host memory here.
#include "check.h"
#include "epoch_pair.h"

using namespace envpack;
using namespace envpack::test;

namespace {

// A tensor that lies on a device.
abi::Tensor OnDevice(const std::string& name, const std::string& bytes, std::int64_t device) {
  abi::Tensor tensor = TensorOf(name, {static_cast<std::int64_t>(bytes.size())}, bytes);
  tensor.memory_type = abi::MemoryType::kGpu;
  tensor.memory_type_id = device;
  return tensor;
}

// The server's place of a tensor: in an allocation, in a pool, or in the region.
PeerTensor InAllocation(const std::string& handle, std::uint64_t offset, std::size_t size,
                        std::int64_t device) {
  return {"IN",
          6,
          {static_cast<std::int64_t>(size)},
          std::string(size, '?'),
          false,
          PeerDevice{device, offset, false, handle, 0}};
}

PeerTensor InPool(std::uint64_t offset, std::size_t size, std::int64_t device) {
  PeerTensor tensor = InAllocation("", offset, size, device);
  tensor.device->in_pool = true;
  return tensor;
}

PeerTensor InRegion(std::size_t size) { return {"", 6, {}, std::string(size, '?'), true}; }

const std::string kFour = "four";
const std::string kThree = "two";

}  // namespace

CASE(epoch_reads_tensors_in_allocations_and_returns_their_buffers) {
  ForEachEpoch([](Pair& pair) {
    pair.gpu.allocations['a'] = "..four..";
    PeerRequest request;
    request.inputs = {InAllocation("a", 2, 4, 3)};
    request.inputs[0].device->release_id = 77;
    pair.peer.SendExecute({request});
    bool is_closed_first = false;
    pair.gpu.on_close = [&] { is_closed_first = !pair.peer.memory_manager.TryPop(0); };
    {
      auto command = std::get<abi::ExecuteCommand>(pair.wire->Receive());
      const abi::Tensor& tensor = command.requests.at(0).inputs.at(0);
      CHECK(tensor.memory_type == abi::MemoryType::kGpu);
      CHECK_EQ(tensor.memory_type_id, 3);
      CHECK_EQ(BytesOf(tensor), "four");
      CHECK((pair.gpu.opened == std::vector<std::int64_t>{3}));
      CHECK(!pair.peer.memory_manager.TryPop(0));
    }
    CHECK_EQ(pair.gpu.closed, 1);
    CHECK(is_closed_first);  // the server may free the buffer as soon as it gets it back
    CHECK_EQ(pair.peer.memory_manager.TryPop(0).value_or(0), 77);
    CHECK(!pair.peer.memory_manager.TryPop(0));
    pair.Both([&] { pair.wire->AnswerExecute(abi::ExecuteFailure{"done"}); },
              [&] { pair.peer.TakeExecute(); });
  });
}

CASE(epoch_reads_tensors_without_a_buffer_to_return) {
  ForEachEpoch([](Pair& pair) {
    PeerRequest request;
    request.inputs = {InAllocation("missing", 0, 4, 0), InAllocation("missing", 0, 0, 0)};
    pair.peer.SendExecute({request});
    {
      auto command = std::get<abi::ExecuteCommand>(pair.wire->Receive());
      CHECK_EQ(command.requests.at(0).inputs.at(0).unreachable, "no such allocation");
      CHECK(command.requests[0].inputs[0].data == nullptr);
      CHECK_EQ(command.requests[0].inputs.at(1).unreachable, "");
    }
    CHECK(!pair.peer.memory_manager.TryPop(0));
    pair.Both([&] { pair.wire->AnswerExecute(abi::ExecuteFailure{"done"}); },
              [&] { pair.peer.TakeExecute(); });
  });
}

CASE(epoch_reads_tensors_in_the_pool) {
  ForEachEpoch({2311}, [](Pair& pair) {
    pair.gpu.allocations['p'] = "..four..";
    const auto offer = [&](const std::string& handle) {
      std::optional<std::string> error;
      pair.Both([&] { pair.wire->ServeServerMessage([](abi::ServerMessage) {}); },
                [&] { error = pair.peer.OfferCudaPool(handle, 4); });
      return error.value_or("");
    };
    CHECK_EQ(offer("wrong"), "no such pool");
    CHECK_EQ(offer("p" + std::string(62, '.') + "!"), "");
    CHECK_EQ(pair.gpu.pools.at(4), "p" + std::string(62, '.') + "!");
    PeerRequest request;
    request.inputs = {InPool(2, 4, 4)};
    pair.peer.SendExecute({request});
    CHECK_EQ(BytesOf(std::get<abi::ExecuteCommand>(pair.wire->Receive()).requests.at(0).inputs.at(0)),
             "four");
    pair.Both([&] { pair.wire->AnswerExecute(abi::ExecuteFailure{"done"}); },
              [&] { pair.peer.TakeExecute(); });
  });
}

CASE(epoch_copies_outputs_to_the_servers_buffers) {
  ForEachEpoch([](Pair& pair) {
    if (pair.release() >= 2406 && pair.release() < 2410) return;  // sent one by one, with buffers for each
    pair.gpu.allocations['a'] = std::string(8, '.');
    pair.peer.SendExecute({PeerRequest{}});
    ExecuteAnswer answer;
    pair.Both(
        [&] {
          pair.wire->Receive();
          const abi::Response response = ResponseOf({OnDevice("A", kFour, 1), TensorOf("HOST", {3}, kThree),
                                                     OnDevice("NONE", "", 1), OnDevice("B", kThree, 2)});
          pair.wire->AnswerExecute(std::vector<std::optional<abi::Response>>{response});
        },
        [&] { answer = pair.peer.TakeExecute(); });
    const auto& outputs = answer.responses.at(0).outputs;
    CHECK_EQ(outputs.size(), 4u);
    CHECK_EQ(outputs[0].device.value().device, 1);
    CHECK_EQ(outputs[0].bytes.size(), 4u);
    CHECK_EQ(outputs[1].bytes, "two");
    CHECK(!outputs[2].device);  // it has no elements, so that the server needs no buffer for it
    CHECK_EQ(outputs[3].device.value().device, 2);
    const Handle buffers = pair.peer.MakeGpuBuffers({InAllocation("a", 2, 4, 1), InRegion(3)});
    pair.Both(
        [&] {
          pair.wire->Receive();  // the next batch; the buffers come before it
          pair.wire->AnswerExecute(abi::ExecuteFailure{"done"});
        },
        [&] {
          pair.peer.SendLoadGpuBuffers(buffers);
          CHECK_EQ(pair.peer.ReadBuffer(buffers, 1), "two");
          pair.peer.SendLoadGpuBuffers(buffers);  // no tensor waits for them any more
          pair.peer.SendExecute({PeerRequest{}});
          pair.peer.TakeExecute();
        });
    CHECK_EQ(pair.gpu.allocations['a'], "..four..");
    CHECK((pair.gpu.copies == std::vector<std::int64_t>{1, 2}));
  });
}

CASE(epoch_copies_outputs_of_a_sender) {
  ForEachEpoch({0, true}, [](Pair& pair) {
    pair.gpu.allocations['a'] = std::string(8, '.');
    const abi::Origin origin{1, 0, nullptr};
    const abi::Response response = ResponseOf({OnDevice("A", kFour, 1)});
    const Handle buffers = pair.peer.MakeGpuBuffers({InAllocation("a", 3, 4, 0)});
    SentResponse sent;
    pair.Both([&] { pair.wire->Send(origin, response, abi::kResponseFinal); },
              [&] { sent = pair.peer.TakeSent("", buffers); });
    CHECK_EQ(sent.response.value().outputs.at(0).device.value().device, 1);
    CHECK_EQ(pair.gpu.allocations['a'], "...four.");
    CHECK((pair.gpu.copies == std::vector<std::int64_t>{1}));
    std::string error;
    const Handle too_many = pair.peer.MakeGpuBuffers({InRegion(4), InRegion(4)});
    pair.Both(
        [&] { error = THROWN(abi::ServerError, pair.wire->Send(origin, response, abi::kResponseFinal)); },
        [&] { pair.peer.TakeSent("", too_many); });
    CHECK_EQ(error, "GPU buffers size does not match the provided buffers: 1 != 2");
    abi::Tensor lost = OnDevice("A", kFour, 1);
    lost.data = nullptr;
    lost.unreachable = "its device is gone";
    const Handle one = pair.peer.MakeGpuBuffers({InRegion(4)});
    pair.Both(
        [&] {
          error = THROWN(abi::ServerError, pair.wire->Send(origin, ResponseOf({lost}), abi::kResponseFinal));
        },
        [&] { pair.peer.TakeSent("", one); });
    CHECK_EQ(error, "its device is gone");
    // The server has refused the response before it made buffers.
    pair.Both(
        [&] { error = THROWN(abi::ServerError, pair.wire->Send(origin, response, abi::kResponseFinal)); },
        [&] { pair.peer.TakeSent("refused"); });
    CHECK_EQ(error, "refused");
  });
}

CASE(epoch_copies_inputs_of_a_request) {
  ForEachEpoch([](Pair& pair) {
    pair.gpu.allocations['a'] = std::string(8, '.');
    abi::Request request;
    request.inputs = {OnDevice("A", kFour, 1), TensorOf("HOST", {3}, kThree), OnDevice("B", kThree, 2)};
    const Handle buffers = pair.peer.MakeGpuBuffers({InAllocation("a", 1, 4, 0), InRegion(3)});
    PeerInferRequest seen;
    pair.Both([&] { return pair.wire->Infer(request, false); },
              [&] { seen = pair.peer.ServeInfer(PeerResponse{}, buffers); });
    CHECK_EQ(seen.inputs.at(0).device.value().device, 1);
    CHECK_EQ(seen.inputs.at(1).bytes, "two");
    CHECK_EQ(seen.inputs.at(2).device.value().device, 2);
    CHECK_EQ(pair.gpu.allocations['a'], ".four...");
    CHECK_EQ(pair.peer.ReadBuffer(buffers, 1), "two");
    std::string error;
    const Handle too_few = pair.peer.MakeGpuBuffers({InRegion(4)});
    pair.Both([&] { error = THROWN(abi::ServerError, pair.wire->Infer(request, false)); },
              [&] { pair.peer.ServeInfer(PeerResponse{}, too_few); });
    CHECK_EQ(error, "GPU buffers size does not match the provided buffers: 2 != 1");
    if (pair.release() < 2306) return;
    const Handle failed = pair.peer.MakeGpuBuffers({}, "out of memory");
    pair.Both([&] { error = THROWN(abi::ServerError, pair.wire->Infer(request, false)); },
              [&] { pair.peer.ServeInfer(PeerResponse{}, failed); });
    CHECK_EQ(error, "Failed to load GPU buffers: out of memory");
  });
}

CASE(epoch_sends_an_allocated_tensor_without_a_copy) {
  ForEachEpoch([](Pair& pair) {
    const abi::Origin origin{1, 0, nullptr};
    SentResponse sent;
    pair.Both(
        [&] {
          const abi::Tensor tensor =
              pair.wire->Allocate(TensorOf("OUT", {2, 2}, kFour, abi::DataType::kUint8));
          CHECK_EQ(reinterpret_cast<std::uintptr_t>(tensor.data) % 8, 0u);
          std::memcpy(const_cast<void*>(tensor.data), "late", 4);
          pair.wire->Send(origin, ResponseOf({tensor}), abi::kResponseFinal);
        },
        [&] { sent = pair.peer.TakeSent(); });
    const PeerTensor& output = sent.response.value().outputs.at(0);
    CHECK(output.separate);
    CHECK_EQ(output.name, "OUT");
    CHECK_EQ(output.dtype, 2);
    CHECK((output.dims == std::vector<std::int64_t>{2, 2}));
    CHECK_EQ(output.bytes, "late");
  });
}
