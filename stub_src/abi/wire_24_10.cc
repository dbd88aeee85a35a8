#include "abi/wire_24_10.h"

#include <cstring>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "abi/codec_24_10.h"
#include "abi/records_24_10.h"
#include "shm/queue.h"
#include "shm/region.h"
#include "shm/sync.h"

namespace envpack::abi::r24_10 {

namespace {

constexpr std::int64_t kDummy = 0;

class Wire24_10 final : public Wire {
 public:
  explicit Wire24_10(const Launch& launch)
      : region_(launch.region, launch.region_growth),
        control_(region_.Load(launch.control_handle)),
        commands_(region_, control_.As<Control>()->stub_message_queue),
        answers_(region_, control_.As<Control>()->parent_message_queue),
        to_server_(region_, control_.As<Control>()->stub_to_parent_mq),
        unasked_(region_, control_.As<Control>()->parent_to_stub_mq) {}

  bool UsesEnvironment() const override { return control_.As<Control>()->uses_env; }
  bool Decoupled() const override { return control_.As<Control>()->decoupled; }
  void Announce() override { answers_.Push(kDummy); }
  std::uint64_t FreeBytes() override { return region_.FreeBytes(); }
  void Abandon() noexcept override { region_.Unlink(); }

  void Beat() override {
    auto* control = control_.As<Control>();
    const shm::Lock lock(&control->stub_health_mutex);
    control->stub_health = true;
  }

  Command Receive() override;
  void AnswerAutoComplete(const AutoCompleteAnswer& answer) override;
  void AnswerInitialize(const InitializeAnswer& answer) override;
  void AnswerExecute(const ExecuteAnswer& answer) override;
  void AnswerFinalize() override;
  void Log(const LogLine& line) override;
  bool ServeUnasked() override;

 private:
  void Answer(Writer& writer, CommandNumber number, Handle args);
  void AnswerWith(const shm::Block& message);
  void RefuseCudaPool(const Message& message);

  shm::Region region_;
  shm::Block control_;
  shm::Queue commands_;
  shm::Queue answers_;
  shm::Queue to_server_;
  shm::Queue unasked_;
  shm::Block current_;  // the command being dealt with; Finalize is answered in the same block
};

void FillMessage(Message* message, CommandNumber number, Handle args) {
  *message = Message{};
  message->command = number;
  message->args = args;
}

Command Wire24_10::Receive() {
  current_ = region_.Load(commands_.Pop());
  const Message message = *current_.As<Message>();
  switch (message.command) {
    case CommandNumber::kAutoCompleteRequest:
      return AutoCompleteCommand{ReadString(region_, message.args)};
    case CommandNumber::kInitializeRequest:
      return InitializeCommand{ReadDict(region_, message.args)};
    case CommandNumber::kExecuteRequest:
      return ExecuteCommand{ReadRequests(region_, message.args)};
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
  if (const auto* failure = std::get_if<Failure>(&answer)) {
    batch.has_error = batch.is_error_set = true;
    batch.error = writer.WriteString(failure->text);
  } else {
    for (const abi::Response& response : std::get<std::vector<abi::Response>>(answer)) {
      responses.push_back(writer.WriteResponse(response));
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
}

void Wire24_10::AnswerFinalize() {
  current_.As<Message>()->command = CommandNumber::kFinalizeResponse;
  answers_.Push(current_.handle());
}

void Wire24_10::Log(const LogLine& line) {
  Writer writer(region_);
  const Handle file = writer.WriteString(line.file);
  const Handle text = writer.WriteString(line.message);
  const shm::Block& block = writer.Make(sizeof(r24_10::Log));
  auto* log = block.As<r24_10::Log>();
  *log = r24_10::Log{};
  shm::InitMutex(&log->mutex);
  shm::InitCondition(&log->condition);
  log->file = file;
  log->line = line.line;
  log->message = text;
  log->level = static_cast<std::int32_t>(line.level);
  const shm::Block& message = writer.Make(sizeof(Message));
  FillMessage(message.As<Message>(), CommandNumber::kLogRequest, block.handle());

  shm::Lock lock(&log->mutex);
  to_server_.Push(message.handle());
  while (!log->waiting_on_stub) lock.Wait(&log->condition);
  log->waiting_on_stub = false;
  shm::Notify(&log->condition);
}

bool Wire24_10::ServeUnasked() {
  const Handle handle = unasked_.Pop();
  if (handle == kDummy) return false;
  const shm::Block block = region_.Load(handle);
  const Message message = *block.As<Message>();
  if (message.command == CommandNumber::kCudaPoolInitializeRequest) RefuseCudaPool(message);
  return true;
}

// Silence would block the server's thread for ever, so a stub that has no use for GPU memory says so.
void Wire24_10::RefuseCudaPool(const Message& message) {
  Writer writer(region_);
  const shm::Block block = region_.Load(message.args);
  auto* pool = block.As<CudaMemoryPool>();
  pool->error = writer.WriteString("this stub does not use GPU memory");
  pool->has_error = pool->is_error_set = true;
  const shm::Block mutex = region_.Load(message.response_mutex);
  const shm::Block condition = region_.Load(message.response_cond);
  shm::Lock lock(mutex.As<pthread_mutex_t>());
  pool->waiting_on_stub = true;
  shm::Notify(condition.As<pthread_cond_t>());
  while (pool->waiting_on_stub) lock.Wait(condition.As<pthread_cond_t>());
}

}  // namespace

std::unique_ptr<Wire> OpenWire(const Launch& launch) { return std::make_unique<Wire24_10>(launch); }

}  // namespace envpack::abi::r24_10

namespace envpack::abi {

std::unique_ptr<Wire> OpenWire(const Launch& launch) { return r24_10::OpenWire(launch); }

}  // namespace envpack::abi
