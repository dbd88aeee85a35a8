#include "abi/wire_24_10.h"

#include <cstring>
#include <optional>
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
  void Send(const Origin& origin, const std::optional<abi::Response>& response, std::uint32_t flags) override;
  void DropResponseFactory(const Origin& origin) override;
  bool IsCancelled(const Origin& origin) override;
  void SetReleaseFlags(const Origin& origin, std::uint32_t flags) override;
  bool ServeUnasked() override;

 private:
  void Answer(Writer& writer, CommandNumber number, Handle args);
  void AnswerWith(const shm::Block& message);
  template <typename Record, typename Finish>
  void Exchange(Writer& writer, CommandNumber number, const shm::Block& block, Finish finish);
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
}

void Wire24_10::AnswerFinalize() {
  current_.As<Message>()->command = CommandNumber::kFinalizeResponse;
  answers_.Push(current_.handle());
}

// The two-way exchange of most of the stub's own requests: hand the record over, wait until the server has
// filled it, let `finish` copy what it says, and only then release the server.
template <typename Record, typename Finish>
void Wire24_10::Exchange(Writer& writer, CommandNumber number, const shm::Block& block, Finish finish) {
  auto* record = block.As<Record>();
  shm::InitMutex(&record->mutex);
  shm::InitCondition(&record->condition);
  const shm::Block& message = writer.Make(sizeof(Message));
  FillMessage(message.As<Message>(), number, block.handle());

  shm::Lock lock(&record->mutex);
  to_server_.Push(message.handle());
  while (!record->waiting_on_stub) lock.Wait(&record->condition);
  finish(*record);
  record->waiting_on_stub = false;
  shm::Notify(&record->condition);
}

void Wire24_10::Log(const LogLine& line) {
  Writer writer(region_);
  r24_10::Log record{};
  record.file = writer.WriteString(line.file);
  record.line = line.line;
  record.message = writer.WriteString(line.message);
  record.level = static_cast<std::int32_t>(line.level);
  const shm::Block& block = writer.Make(sizeof(record));
  *block.As<r24_10::Log>() = record;
  Exchange<r24_10::Log>(writer, CommandNumber::kLogRequest, block, [](const r24_10::Log&) {});
}

bool Wire24_10::IsCancelled(const Origin& origin) {
  Writer writer(region_);
  r24_10::IsCancelled record{};
  record.response_factory_address = origin.response_factory;
  record.request_address = origin.request;
  const shm::Block& block = writer.Make(sizeof(record));
  *block.As<r24_10::IsCancelled>() = record;
  bool cancelled = false;
  Exchange<r24_10::IsCancelled>(writer, CommandNumber::kIsRequestCancelled, block,
                                [&](const r24_10::IsCancelled& answer) { cancelled = answer.is_cancelled; });
  return cancelled;
}

void Wire24_10::SetReleaseFlags(const Origin& origin, std::uint32_t flags) {
  static_cast<const shm::Block*>(origin.record.get())->As<Request>()->release_flags = flags;
}

// Both sides take turns: the server sends the response, says how it went, and waits until we have read that.
void Wire24_10::Send(const Origin& origin, const std::optional<abi::Response>& response,
                     std::uint32_t flags) {
  Writer writer(region_);
  ResponseSend record{};
  record.request_address = origin.request;
  record.response_factory_address = origin.response_factory;
  record.response = response ? writer.WriteResponse(*response) : 0;
  record.flags = flags;
  const shm::Block& block = writer.MakeAligned(sizeof(record));
  auto* shared = block.As<ResponseSend>();
  *shared = record;
  shm::InitMutex(&shared->mutex);
  shm::InitCondition(&shared->condition);
  const shm::Block& message = writer.Make(sizeof(Message));
  FillMessage(message.As<Message>(), CommandNumber::kResponseSend, block.handle());

  std::optional<std::string> failure;
  {
    shm::Lock lock(&shared->mutex);
    to_server_.Push(message.handle());
    while (!shared->is_stub_turn) lock.Wait(&shared->condition);
    if (shared->has_error) {
      failure = shared->is_error_set ? ReadString(region_, shared->error)
                                     : std::string("An error occurred while sending a response.");
    }
    shared->is_stub_turn = false;
    shm::Notify(&shared->condition);
  }
  if (failure) throw ServerFailed(*failure);
}

// One-way: the message brings a mutex and a condition of its own, and the server only says that it has seen
// it.
void Wire24_10::DropResponseFactory(const Origin& origin) {
  Writer writer(region_);
  const shm::Block& block = writer.Make(sizeof(Cleanup));
  auto* cleanup = block.As<Cleanup>();
  *cleanup = Cleanup{};
  cleanup->id = origin.response_factory;
  const shm::Block& mutex = writer.MakeAligned(sizeof(pthread_mutex_t));
  const shm::Block& condition = writer.MakeAligned(sizeof(pthread_cond_t));
  shm::InitMutex(mutex.As<pthread_mutex_t>());
  shm::InitCondition(condition.As<pthread_cond_t>());
  const shm::Block& message = writer.Make(sizeof(Message));
  FillMessage(message.As<Message>(), CommandNumber::kResponseFactoryCleanup, block.handle());
  message.As<Message>()->inline_response = true;
  message.As<Message>()->response_mutex = mutex.handle();
  message.As<Message>()->response_cond = condition.handle();

  shm::Lock lock(mutex.As<pthread_mutex_t>());
  to_server_.Push(message.handle());
  while (!cleanup->waiting_on_stub) lock.Wait(condition.As<pthread_cond_t>());
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
