// The exchange on the two main queues: commands to the stub, answers from it.
#include "peer.h"

#include <pthread.h>
#include <unistd.h>

#include <cstring>

#include "check.h"
#include "peer_sync.h"

namespace envpack::test {

// The control record is the first block, so that it has the same handle as with a real server.
Peer::Peer(const Options& options)
    : layouts(options.release),
      region(options.size, options.release >= 2404),
      control(region.Create(sizeof(records::Control))),
      to_stub_commands(region, options.slots),
      from_stub_answers(region, options.slots),
      from_stub_requests(region, options.slots),
      to_stub_messages(region, options.slots),
      memory_manager(region, options.slots),
      wakes_spuriously_(options.wakes_spuriously) {
  auto* record = region.As<records::Control>(control);
  std::memset(static_cast<void*>(record), 0, sizeof(*record));
  record->decoupled = options.decoupled;
  InitShared(&record->parent_health_mutex);
  InitShared(&record->stub_health_mutex);
  record->stub_message_queue = to_stub_commands.handle();
  record->parent_message_queue = from_stub_answers.handle();
  record->stub_to_parent_mq = from_stub_requests.handle();
  record->parent_to_stub_mq = to_stub_messages.handle();
  record->memory_manager_message_queue = memory_manager.handle();
}

Fields Peer::FieldsOf(const std::string& record, Handle handle, std::size_t offset) {
  return {region.At(handle, offset), layouts.Of(record)};
}

Handle Peer::Make(const std::string& record, std::size_t extra) {
  const std::size_t size = layouts.SizeOf(record);
  const Handle handle = Own(size + extra);
  std::memset(region.At(handle), 0, size);
  return handle;
}

void Peer::TakeStartupMessage() {
  if (layouts.release() >= 2305) from_stub_answers.Pop();
}

bool Peer::BeatsAgain(int milliseconds) {
  auto* record = region.As<records::Control>(control);
  const auto locked = [record](bool reset) {
    pthread_mutex_lock(&record->stub_health_mutex);
    const bool before = record->stub_health;
    if (reset) record->stub_health = false;
    pthread_mutex_unlock(&record->stub_health_mutex);
    return before;
  };
  locked(true);
  for (int i = 0; i < milliseconds / 10 && !locked(false); ++i) usleep(10000);
  return locked(false);
}

Handle Peer::Own(std::size_t size) {
  const Handle handle = region.Create(size);
  const std::lock_guard lock(owning_);
  owned_.push_back(handle);
  return handle;
}

void Peer::Drop() {
  for (const Handle handle : owned_) region.Release(handle);
  owned_.clear();
}

Handle Peer::Send(const std::string& command, Handle args) {
  const Handle message = Own(sizeof(records::Message));
  auto* record = region.As<records::Message>(message);
  record->command = layouts.NumberOf(command);
  record->args = args;
  record->inline_response = false;
  to_stub_commands.Push(message);
  return message;
}

Handle Peer::SendAutoComplete(const std::string& config) {
  return Send("AutoCompleteRequest", MakeString(config));
}

Handle Peer::SendInitialize(const std::map<std::string, std::string>& arguments) {
  return Send("InitializeRequest", MakeDict(arguments));
}

Handle Peer::SendExecute(const std::vector<PeerRequest>& requests) {
  return Send("ExecuteRequest", MakeBatch(requests));
}

Handle Peer::SendFinalize() { return Send("FinalizeRequest", 0x5A5A5A); }

Handle Peer::SendCommand(std::int32_t number) {
  const Handle message = Own(sizeof(records::Message));
  auto* record = region.As<records::Message>(message);
  *record = {};
  record->command = number;
  to_stub_commands.Push(message);
  return message;
}

Handle Peer::Expect(const std::string& command) {
  const Handle message = from_stub_answers.Pop();
  region.AddReference(message);
  CHECK_EQ(region.As<records::Message>(message)->command, layouts.NumberOf(command));
  return message;
}

void Peer::Acknowledge(Handle message) {
  region.Release(message);
  to_stub_commands.Push(0);
}

std::optional<std::string> Peer::TakeInitialize() {
  const Handle message = Expect("InitializeResponse");
  const auto* answer = region.As<records::InitializeResponse>(region.As<records::Message>(message)->args);
  std::optional<std::string> error;
  CHECK_EQ(answer->has_error, answer->is_error_set);
  if (answer->has_error) error = ReadString(answer->error);
  Acknowledge(message);
  return error;
}

std::optional<std::string> Peer::TakeAutoComplete(std::string* config) {
  const Handle message = Expect("AutoCompleteResponse");
  const auto* answer = region.As<records::AutoCompleteResponse>(region.As<records::Message>(message)->args);
  std::optional<std::string> error;
  CHECK_EQ(answer->has_error, answer->is_error_set);
  CHECK_EQ(answer->has_error, !answer->has_model_config);
  if (answer->has_error) error = ReadString(answer->error);
  if (answer->has_model_config) *config = ReadString(answer->model_config);
  Acknowledge(message);
  return error;
}

// From 24.06 to 24.09 the responses precede the answer, like those of response senders. From 24.10 on the
// batch follows the message, and `args` is ignored.
ExecuteAnswer Peer::TakeExecute() {
  ExecuteAnswer answer;
  Handle message = from_stub_answers.Pop();
  for (; region.As<records::Message>(message)->command == layouts.NumberOf("ResponseSend");
       message = from_stub_answers.Pop()) {
    region.AddReference(message);
    region.AddReference(region.As<records::Message>(message)->args);
    const SentResponse sent = ServeSent(message, "", 0);
    CHECK_EQ(sent.flags, 1u);
    if (sent.response_factory != 0) CHECK_EQ(TakeFactoryCleanup(), sent.response_factory);
    answer.responses.push_back(sent.response.value());
  }
  region.AddReference(message);
  CHECK_EQ(region.As<records::Message>(message)->command, layouts.NumberOf("ExecuteResponse"));
  const bool in_one_block = layouts.release() >= 2410;
  const Handle block = in_one_block ? message : region.As<records::Message>(message)->args;
  const std::size_t at = in_one_block ? sizeof(records::Message) : 0;
  const Fields batch = FieldsOf("ResponseBatch", block, at);
  const bool has_error = batch.Get<bool>("has_error");
  CHECK_EQ(has_error, batch.Get<bool>("is_error_set"));
  if (in_one_block) answer.factories_deleted = batch.Get<bool>("is_response_factory_deleted");
  if (has_error) answer.error = ReadString(batch.Get<Handle>("error"));
  for (std::uint32_t i = 0; i < batch.Get<std::uint32_t>("batch_size"); ++i) {
    const Handle response = *region.As<Handle>(block, at + batch.size() + i * sizeof(Handle));
    answer.responses.push_back(response == 0 ? PeerResponse{} : ReadResponse(response));
    answer.responses.back().is_none = response == 0;
  }
  Acknowledge(message);
  return answer;
}

bool Peer::TakeFinalize(Handle sent) {
  const Handle message = from_stub_answers.Pop();
  return message == sent &&
         region.As<records::Message>(message)->command == layouts.NumberOf("FinalizeResponse");
}

}  // namespace envpack::test
