// The conversation on the two main queues: commands out, answers in.
#include "peer.h"

#include <pthread.h>
#include <unistd.h>

#include <cstring>

#include "check.h"
#include "peer_sync.h"

namespace envpack::test {

// The control record comes first, so that it has the handle that every real server gives it.
Peer::Peer(const Options& options)
    : region(options.size),
      control(region.Create(sizeof(records::Control))),
      to_stub_commands(region, options.slots),
      from_stub_answers(region, options.slots),
      from_stub_requests(region, options.slots),
      to_stub_unasked(region, options.slots),
      memory_manager(region, options.slots) {
  auto* record = region.As<records::Control>(control);
  std::memset(static_cast<void*>(record), 0, sizeof(*record));
  record->decoupled = options.decoupled;
  InitShared(&record->parent_health_mutex);
  InitShared(&record->stub_health_mutex);
  record->stub_message_queue = to_stub_commands.handle();
  record->parent_message_queue = from_stub_answers.handle();
  record->stub_to_parent_mq = from_stub_requests.handle();
  record->parent_to_stub_mq = to_stub_unasked.handle();
  record->memory_manager_message_queue = memory_manager.handle();
}

bool Peer::BeatsAgain() {
  auto* record = region.As<records::Control>(control);
  const auto locked = [record](bool reset) {
    pthread_mutex_lock(&record->stub_health_mutex);
    const bool before = record->stub_health;
    if (reset) record->stub_health = false;
    pthread_mutex_unlock(&record->stub_health_mutex);
    return before;
  };
  locked(true);
  for (int i = 0; i < 20; ++i) {
    usleep(50000);
    if (locked(false)) return true;
  }
  return false;
}

Handle Peer::Own(std::size_t size) {
  owned_.push_back(region.Create(size));
  return owned_.back();
}

void Peer::Drop() {
  for (const Handle handle : owned_) region.Release(handle);
  owned_.clear();
}

Handle Peer::Send(records::CommandNumber number, Handle args) {
  const Handle message = Own(sizeof(records::Message));
  auto* record = region.As<records::Message>(message);
  record->command = number;
  record->args = args;
  record->inline_response = false;
  to_stub_commands.Push(message);
  return message;
}

Handle Peer::SendAutoComplete(const std::string& config) {
  return Send(records::CommandNumber::kAutoCompleteRequest, MakeString(config));
}

Handle Peer::SendInitialize(const std::map<std::string, std::string>& arguments) {
  return Send(records::CommandNumber::kInitializeRequest, MakeDict(arguments));
}

Handle Peer::SendExecute(const std::vector<PeerRequest>& requests) {
  return Send(records::CommandNumber::kExecuteRequest, MakeBatch(requests));
}

Handle Peer::SendFinalize() { return Send(records::CommandNumber::kFinalizeRequest, 0x5A5A5A); }

Handle Peer::SendCommand(std::int32_t number) { return Send(static_cast<records::CommandNumber>(number), 0); }

Handle Peer::Expect(records::CommandNumber number) {
  const Handle message = from_stub_answers.Pop();
  region.AddReference(message);
  CHECK_EQ(static_cast<int>(region.As<records::Message>(message)->command), static_cast<int>(number));
  return message;
}

void Peer::Acknowledge(Handle message) {
  region.Release(message);
  to_stub_commands.Push(0);
}

std::optional<std::string> Peer::TakeInitialize() {
  const Handle message = Expect(records::CommandNumber::kInitializeResponse);
  const auto* answer = region.As<records::InitializeResponse>(region.As<records::Message>(message)->args);
  std::optional<std::string> error;
  CHECK_EQ(answer->has_error, answer->is_error_set);
  if (answer->has_error) error = ReadString(answer->error);
  Acknowledge(message);
  return error;
}

std::optional<std::string> Peer::TakeAutoComplete(std::string* config) {
  const Handle message = Expect(records::CommandNumber::kAutoCompleteResponse);
  const auto* answer = region.As<records::AutoCompleteResponse>(region.As<records::Message>(message)->args);
  std::optional<std::string> error;
  CHECK_EQ(answer->has_error, answer->is_error_set);
  CHECK_EQ(answer->has_error, !answer->has_model_config);
  if (answer->has_error) error = ReadString(answer->error);
  if (answer->has_model_config) *config = ReadString(answer->model_config);
  Acknowledge(message);
  return error;
}

// The batch is read from behind the message, whatever `args` says.
ExecuteAnswer Peer::TakeExecute() {
  const Handle message = Expect(records::CommandNumber::kExecuteResponse);
  const auto* batch = region.As<records::ResponseBatch>(message, sizeof(records::Message));
  ExecuteAnswer answer;
  CHECK_EQ(batch->has_error, batch->is_error_set);
  answer.factories_deleted = batch->is_response_factory_deleted;
  if (batch->has_error) answer.error = ReadString(batch->error);
  constexpr std::size_t kHandles = sizeof(records::Message) + sizeof(records::ResponseBatch);
  for (std::uint32_t i = 0; i < batch->batch_size; ++i) {
    const Handle response = *region.As<Handle>(message, kHandles + i * sizeof(Handle));
    answer.responses.push_back(response == 0 ? PeerResponse{} : ReadResponse(response));
  }
  Acknowledge(message);
  return answer;
}

bool Peer::TakeFinalize(Handle sent) {
  const Handle message = from_stub_answers.Pop();
  return message == sent &&
         region.As<records::Message>(message)->command == records::CommandNumber::kFinalizeResponse;
}

}  // namespace envpack::test
