#include "scenarios.h"

#include <array>
#include <cstring>
#include <optional>
#include <string>
#include <variant>

#include "abi/records.h"
#include "server_turn.h"

namespace envpack::fuzz {

namespace {

namespace records = abi::records;
using test::PeerRequest;
using test::PeerTensor;

// Small, so that damaged messages reach the end of the region.
constexpr std::size_t kSize = 1 << 16;

abi::Launch LaunchFor(test::Peer& peer) {
  abi::Launch launch;
  launch.region = peer.region.name();
  launch.region_growth = kSize;
  launch.control_handle = peer.control;
  return launch;
}

test::Peer::Options Small(abi::Release release) {
  test::Peer::Options options;
  options.release = release;
  options.size = kSize;
  options.slots = 128;  // more than one message has tensors
  return options;
}

// Reads every byte that a value refers to, like a model.
volatile unsigned sum;
void ReadAll(const void* data, std::size_t size) {
  for (std::size_t i = 0; i < size; ++i) sum = sum + static_cast<const unsigned char*>(data)[i];
}
void ReadAll(const std::string& text) { ReadAll(text.data(), text.size()); }
void ReadAll(const abi::Tensor& tensor) {
  ReadAll(tensor.name);
  if (tensor.memory_type != abi::MemoryType::kGpu) ReadAll(tensor.data, tensor.byte_size);
}
void ReadAll(const abi::Request& request) {
  ReadAll(request.id);
  ReadAll(request.parameters);
  for (const auto& input : request.inputs) ReadAll(input);
}
void ReadAll(const abi::InferResponse& answer) {
  if (answer.response.error) ReadAll(answer.response.error->message);
  for (const auto& output : answer.response.outputs) ReadAll(output);
}
void ReadAll(const abi::Command& command) {
  if (const auto* execute = std::get_if<abi::ExecuteCommand>(&command)) {
    for (const auto& request : execute->requests) ReadAll(request);
  }
}

std::vector<PeerRequest> Requests() {
  PeerRequest full;
  full.inputs = {{"IN", 11, {2, 1}, "12345678"},
                 {"APART", 13, {1}, std::string("\4\0\0\0text", 8), true},
                 {"EMPTY", 6, {0, 3}, ""}};
  full.outputs = {"OUT", "MORE"};
  full.id = "id";
  full.parameters = R"({"key": "value"})";
  return {full, PeerRequest{}};
}

// A request with a text correlation id and a trace.
Handle WriteTextId(Stage& stage) {
  const Handle batch = stage.peer.MakeBatch({PeerRequest{}});
  const Handle request = *stage.peer.region.As<Handle>(batch, sizeof(records::RequestBatch<kRelease>));
  auto* record = stage.peer.region.As<records::Request<kRelease>>(request);
  *stage.peer.region.As<records::CorrelationId>(record->correlation_id) = {stage.peer.MakeString("text"), 0,
                                                                           1};
  stage.peer.region.As<records::Trace>(static_cast<test::Handle>(record->trace))->context =
      stage.peer.MakeString("context");
  return batch;
}

PeerTensor OnDevice(bool in_pool) {
  PeerTensor tensor{"GPU", 11, {2}, "12345678"};
  tensor.device = test::PeerDevice{0, 16, in_pool, std::string(64, 'h'), 5};
  return tensor;
}

Handle WriteOnDevice(Stage& stage) {
  PeerRequest request;
  request.inputs = {OnDevice(true), OnDevice(false)};
  return stage.peer.SendExecute({request});
}

Handle WriteAnswer(Stage& stage) {
  PeerTensor separate = OnDevice(false);
  separate.separate = true;
  return stage.peer.MakeResponse({{Requests()[0].inputs[0], Requests()[0].inputs[1], separate}, {}, 0});
}

// Receive() skips some messages, so a last message follows that ends it.
void Receive(Stage& stage, Handle) {
  const auto wire = stage.OpenWire();
  stage.peer.to_stub_commands.Push(stage.last);
  ReadAll(wire->Receive());
}

// The server requests the bytes of the answer's GPU tensors, one on the device, one in the region.
Handle WriteBuffers(Stage& stage) {
  PeerTensor host = OnDevice(false);
  host.device.reset();
  stage.peer.to_stub_commands.Push(0);
  const Handle message = stage.peer.SendCommand(stage.peer.layouts.NumberOf("LoadGpuBuffers"));
  stage.peer.region.As<records::Message>(message)->args = stage.peer.MakeGpuBuffers({OnDevice(false), host});
  return message;
}

void FillBuffers(Stage& stage, Handle message) {
  const auto wire = stage.OpenWire();
  abi::Tensor tensor;
  tensor.name = "GPU";
  tensor.dtype = abi::DataType::kFp32;
  tensor.dims = {2};
  tensor.memory_type = abi::MemoryType::kGpu;
  tensor.data = "12345678";
  tensor.byte_size = 8;
  abi::Response response;
  response.outputs = {tensor, tensor};
  wire->AnswerExecute(std::vector<std::optional<abi::Response>>{response});
  Receive(stage, message);
}

void ReadRequests(Stage& stage, Handle handle) {
  const shm::ReadBudget budget(stage.region);
  for (const auto& request : stage.reader.ReadRequests(handle)) ReadAll(request);
}

void ReadTensor(Stage& stage, Handle handle) { ReadAll(stage.reader.ReadTensor(handle)); }

void ReadString(Stage& stage, Handle handle) { ReadAll(stage.reader.ReadString(handle)); }

void ReadAnswer(Stage& stage, Handle handle) { ReadAll(stage.reader.ReadInferResponse(handle)); }

// The fields of a queue after its semaphores, on which the stub would wait forever.
Part QueueFields(Handle queue) { return {queue, 104, 24}; }

std::vector<Part> ControlAndQueues(Stage& stage) {
  std::vector<Part> parts{{stage.peer.control, 0, 4}, {stage.peer.control, 88, 40}};
  for (const test::PeerQueue* queue :
       {&stage.peer.to_stub_commands, &stage.peer.from_stub_answers, &stage.peer.from_stub_requests,
        &stage.peer.to_stub_messages, &stage.peer.memory_manager}) {
    parts.push_back(QueueFields(queue->handle()));
  }
  return parts;
}

std::vector<Part> OneQueue(Stage& stage) { return {QueueFields(stage.peer.to_stub_commands.handle())}; }

void UseQueue(Stage& stage, Handle handle) {
  shm::Queue queue(stage.region, handle);
  queue.Push(queue.Pop());
}

Handle WriteQueue(Stage& stage) {
  stage.peer.to_stub_commands.Push(1);
  return stage.peer.to_stub_commands.handle();
}

// What the server writes into the record of an exchange about a metric.
Handle WriteMetric(Stage& stage) {
  const Handle handle = stage.peer.region.Create(sizeof(records::CustomMetrics));
  auto* answer = stage.peer.region.As<records::CustomMetrics>(handle);
  *answer = {};
  answer->has_error = answer->is_error_set = true;
  answer->error = stage.peer.MakeString("no such metric");
  answer->value = 1.5;
  return handle;
}

void ReadMetric(Stage& stage, Handle handle) {
  const auto wire = stage.OpenWire();
  const ServerTurn turn([&] {
    const auto* message = stage.peer.region.As<records::Message>(stage.peer.from_stub_requests.Pop());
    auto* record = stage.peer.region.As<records::CustomMetrics>(message->args);
    const auto* answer = stage.peer.region.As<records::CustomMetrics>(handle);
    record->has_error = answer->has_error;
    record->is_error_set = answer->is_error_set;
    record->error = answer->error;
    record->value = answer->value;
    record->waiting_on_stub = true;
  });
  try {
    const double value = wire->MetricValue(1);
    ReadAll(&value, sizeof(value));
  } catch (const abi::ServerError& error) {
    ReadAll(error.what());
  }
}

// The probe is not answered: if the handle of its record is damaged, the answer would overwrite what only the
// server and the stub may write.
void ReadProbe(Stage& stage, Handle) {
  stage.OpenWire()->ServeServerMessage([](const abi::ServerMessage&) {});
}

// All but the command: with another one, the stub would lock the mutex, which may be damaged.
std::vector<Part> HandlesOfMessage(Stage& stage) {
  const Handle message = stage.peer.to_stub_messages.Pop();
  stage.peer.to_stub_messages.Push(message);
  constexpr std::size_t kFrom = offsetof(records::Message, args);
  return {{message, kFrom, sizeof(records::Message) - kFrom}};
}

}  // namespace

std::shared_ptr<void> FakeGpu::Open(const abi::DeviceMemory&) {
  return std::make_shared<std::array<char, 8>>();
}

void FakeGpu::Copy(std::int64_t, void* to, const void* from, std::size_t size) {
  std::memcpy(to, from, size);
}

Stage::Stage(abi::Release of)
    : release(of),
      peer(Small(of)),
      region(peer.region.name(), kSize),
      launch(LaunchFor(peer)),
      released(region, peer.memory_manager.handle()),
      reader(region, gpu, released, device_buffers),
      last(peer.SendFinalize()) {
  peer.to_stub_commands.Pop();
}

std::unique_ptr<abi::Wire> Stage::OpenWire() { return abi::OpenWire(launch, release, gpu); }

// One entry for each message. The corpus contains their indices, so append new ones.
const std::vector<Scenario> kScenarios{
    {"execute", [](Stage& s) { return s.peer.SendExecute(Requests()); }, Receive},
    {"initialize", [](Stage& s) { return s.peer.SendInitialize({{"key", "value"}, {"k", ""}}); }, Receive},
    {"auto-complete", [](Stage& s) { return s.peer.SendAutoComplete("{}"); }, Receive},
    {"finalize", [](Stage& s) { return s.peer.SendFinalize(); }, Receive},
    {"correlation id", WriteTextId, ReadRequests},
    {"tensor", [](Stage& s) { return s.peer.MakeTensor(Requests()[0].inputs[1]); }, ReadTensor},
    {"string", [](Stage& s) { return s.peer.MakeString("text"); }, ReadString},
    {"attach", [](Stage& s) { return s.peer.control; }, [](Stage& s, Handle) { s.OpenWire(); },
     ControlAndQueues},
    {"queue", WriteQueue, UseQueue, OneQueue},
    {"tensors on a device", WriteOnDevice, Receive},
    {"answer of a model", WriteAnswer, ReadAnswer},
    {"error of a model", [](Stage& s) { return s.peer.MakeResponse({{}, "error", 2}); }, ReadAnswer},
    {"buffers on a device", WriteBuffers, FillBuffers},
    {"answer about a metric", WriteMetric, ReadMetric},
    {"readiness probe", [](Stage& s) { return s.peer.SendProbe(); }, ReadProbe, HandlesOfMessage, 2603},
};

}  // namespace envpack::fuzz
