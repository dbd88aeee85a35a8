#include "abi/wire_24_10.h"

#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "abi/records_24_10.h"
#include "shm/queue.h"
#include "shm/region.h"
#include "shm/sync.h"

namespace envpack::abi::r24_10 {

void Wire24_10::FillMessage(Message* message, CommandNumber number, Handle args) {
  *message = Message{};
  message->command = number;
  message->args = args;
}

void Wire24_10::Announce() { answers_.Push(kDummy); }

void Wire24_10::Beat() {
  auto* control = control_.As<Control>();
  const shm::Lock lock(&control->stub_health_mutex);
  control->stub_health = true;
}

Command Wire24_10::Receive() {
  current_ = region_.Load(commands_.Pop());
  const shm::Reading reading(region_);
  const Message message = *current_.As<Message>();
  switch (message.command) {
    case CommandNumber::kLoadGpuBuffers:
      LoadGpuBuffers(message.args);
      return Receive();
    case CommandNumber::kAutoCompleteRequest:
      return AutoCompleteCommand{reader_.ReadString(message.args)};
    case CommandNumber::kInitializeRequest:
      return InitializeCommand{reader_.ReadDict(message.args)};
    case CommandNumber::kExecuteRequest:
      return ExecuteCommand{reader_.ReadRequests(message.args)};
    case CommandNumber::kFinalizeRequest:
      return FinalizeCommand{};
    default:
      return UnknownCommand{static_cast<std::int32_t>(message.command)};
  }
}

void Wire24_10::Answer(Writer& writer, CommandNumber number, Handle args) {
  const shm::Block& message = writer.Make(sizeof(Message));
  FillMessage(message.As<Message>(), number, args);
  AnswerWith(message);
}

// The server acknowledges with a dummy when it has taken its references; until then nothing may be released.
void Wire24_10::AnswerWith(const shm::Block& message) {
  answers_.Push(message.handle());
  commands_.Pop();
  current_ = shm::Block();
}

void Wire24_10::AnswerAutoComplete(const AutoCompleteAnswer& answer) {
  Writer writer(region_);
  AutoCompleteResponse record{};
  if (const auto* failure = std::get_if<Failure>(&answer)) {
    record.has_error = record.is_error_set = true;
    record.error = writer.WriteString(failure->text);
  } else {
    record.has_model_config = true;
    record.model_config = writer.WriteString(std::get<std::string>(answer));
  }
  const shm::Block& block = writer.Make(sizeof(record));
  *block.As<AutoCompleteResponse>() = record;
  Answer(writer, CommandNumber::kAutoCompleteResponse, block.handle());
}

void Wire24_10::AnswerInitialize(const InitializeAnswer& answer) {
  Writer writer(region_);
  InitializeResponse record{};
  if (answer) {
    record.has_error = record.is_error_set = true;
    record.error = writer.WriteString(answer->text);
  }
  const shm::Block& block = writer.Make(sizeof(record));
  *block.As<InitializeResponse>() = record;
  Answer(writer, CommandNumber::kInitializeResponse, block.handle());
}

// The server takes the batch record from directly behind the message, in the same block, whatever `args`
// says.
void Wire24_10::AnswerExecute(const ExecuteAnswer& answer) {
  Writer writer(region_);
  ResponseBatch batch{};
  std::vector<Handle> responses;
  if (const auto* failure = std::get_if<ExecuteFailure>(&answer)) {
    batch.has_error = batch.is_error_set = true;
    batch.error = writer.WriteString(failure->text);
    batch.is_response_factory_deleted = failure->factories_deleted;
  } else {
    for (const auto& response : std::get<std::vector<std::optional<abi::Response>>>(answer)) {
      responses.push_back(response ? writer.WriteResponse(*response) : 0);
    }
  }
  batch.batch_size = static_cast<std::uint32_t>(responses.size());
  const std::size_t responses_bytes = responses.size() * sizeof(Handle);
  constexpr std::size_t kBatchAt = sizeof(Message);
  constexpr std::size_t kResponsesAt = kBatchAt + sizeof(ResponseBatch);
  const shm::Block& block = writer.Make(kResponsesAt + responses_bytes);
  FillMessage(block.As<Message>(), CommandNumber::kExecuteResponse,
              block.handle() + static_cast<Handle>(kBatchAt));
  *block.As<ResponseBatch>(kBatchAt) = batch;
  if (!responses.empty()) {
    std::memcpy(block.At(kResponsesAt, responses_bytes), responses.data(), responses_bytes);
  }
  AnswerWith(block);
  awaited_ = writer.device_tensors();
}

void Wire24_10::AnswerFinalize() {
  current_.As<Message>()->command = CommandNumber::kFinalizeResponse;
  answers_.Push(current_.handle());
}

abi::Tensor Wire24_10::Allocate(const abi::Tensor& tensor) { return Writer::Allocate(region_, tensor); }

bool Wire24_10::ServeUnasked(const std::function<void(InferResponse)>& deliver) {
  const Handle handle = unasked_.Pop();
  if (handle == kDummy) return false;
  const shm::Block block = region_.Load(handle);
  const Message message = *block.As<Message>();
  if (message.command == CommandNumber::kCudaPoolInitializeRequest) {
    AttachPool(message);
  } else if (message.command == CommandNumber::kInferStreamExecResponse) {
    deliver(TakeStreamResponse(message));
  }
  return true;
}

std::unique_ptr<Wire> OpenWire(const Launch& launch, GpuMemory& gpu) {
  return std::make_unique<Wire24_10>(launch, gpu);
}

}  // namespace envpack::abi::r24_10

namespace envpack::abi {

std::unique_ptr<Wire> OpenWire(const Launch& launch, GpuMemory& gpu) { return r24_10::OpenWire(launch, gpu); }

}  // namespace envpack::abi
