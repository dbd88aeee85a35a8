#include "front/recovery/deputy.h"

#include <pthread.h>

#include <chrono>
#include <cstddef>
#include <thread>

#include "abi/traits.h"
#include "shm/abandoned.h"
#include "shm/sync.h"

namespace envpack::front {

namespace {

using abi::CommandKind;
using abi::Handle;
namespace records = abi::records;

constexpr std::chrono::milliseconds kTick(2);
constexpr std::chrono::seconds kForAcknowledgement(1);
constexpr std::chrono::seconds kLimit(60);  // the server may be busy, but a damaged message is never answered

// How the records of requests begin up to 24.03.
using OldRequest = records::Request23_04;
template <typename Record>
constexpr bool kBeginsLikeOld =
    offsetof(Record, address) == offsetof(OldRequest, address) &&
    offsetof(Record, response_factory_address) == offsetof(OldRequest, response_factory_address);
static_assert(kBeginsLikeOld<records::Request23_08> && kBeginsLikeOld<records::Request23_11> &&
              kBeginsLikeOld<records::Request23_12>);

template <typename Record>
abi::Origin OriginIn(const shm::Block& request) {
  const auto* record = request.As<Record>();
  return {record->address, record->response_factory_address, nullptr};
}

}  // namespace

Deputy::Deputy(const abi::Launch& launch, abi::Release release)
    : abi::FrontSession(launch, abi::RequireBuilt(release), abi::MakeJournal()),
      to_server_(region_, control().stub_to_parent_mq),
      server_messages_(region_, control().parent_to_stub_mq),
      released_(region_, control().memory_manager_message_queue) {}

CommandKind Deputy::KindOf(const shm::Block& message) const {
  return numbers_.KindOf(message.As<records::Message>()->command);
}

bool Deputy::HasOpenBatch() {
  const Handle last = commands_.LastTaken();
  if (last == records::kDummy || commands_.HasValueWithin(std::chrono::milliseconds(0))) return false;
  return region_.References(last) > 0 && KindOf(region_.Load(last)) == CommandKind::kExecuteRequest;
}

std::vector<abi::Origin> Deputy::OriginsOf(const shm::Block& message) {
  const shm::Block batch = region_.Load(message.As<records::Message>()->args);
  const std::size_t head = abi::HasBufferRecord(release_) ? sizeof(records::RequestBatch23_06)
                                                          : sizeof(records::RequestBatch23_04);
  static_assert(offsetof(records::RequestBatch23_04, batch_size) ==
                offsetof(records::RequestBatch23_06, batch_size));
  const std::uint32_t size = batch.As<records::RequestBatch23_06>()->batch_size;
  std::vector<abi::Origin> origins;
  for (const Handle handle : abi::Reader::ReadHandles(batch, head, size)) {
    const shm::Block request = region_.Load(handle);
    origins.push_back(abi::HasStringRecords(release_) ? OriginIn<records::Request24_04>(request)
                                                      : OriginIn<OldRequest>(request));
  }
  return origins;
}

void Deputy::AnswerFinalizeOf(const shm::Block& message) {
  message.As<records::Message>()->command = numbers_.Of(CommandKind::kFinalizeResponse);
  answers_.PushWithin(kLimit, message.handle());
}

void Deputy::TakeAcknowledgement(const Meanwhile& meanwhile) {
  const auto limit = std::chrono::steady_clock::now() + kLimit;
  while (!commands_.HasValueWithin(kTick)) {
    if (std::chrono::steady_clock::now() > limit) throw shm::Abandoned("the server does not take an answer");
    meanwhile();
  }
  commands_.Pop();
}

void Deputy::Await(const records::Flag& flag, shm::Lock& lock, pthread_cond_t* condition) {
  const auto limit = std::chrono::system_clock::now() + kLimit;
  while (!flag) {
    if (!lock.WaitUntil(condition, limit)) throw shm::Abandoned("the server does not answer the stub");
  }
}

void Deputy::FailBatch(const std::string& text, const Meanwhile& meanwhile, bool keep_factories) {
  abi::Writer writer(region_);
  records::ResponseBatch24_10 batch{};
  batch.has_error = batch.is_error_set = true;
  batch.is_response_factory_deleted = keep_factories;
  batch.error = writer.WriteString(text);
  AnswerBatch(writer, batch, meanwhile);
}

void Deputy::EndBatch(const Meanwhile& meanwhile) {
  abi::Writer writer(region_);
  AnswerBatch(writer, {}, meanwhile);
}

void Deputy::RefuseBatch(const std::string& text, const Meanwhile& meanwhile) {
  const std::vector<abi::Origin> origins = OriginsOf(region_.Load(commands_.LastTaken()));
  FailBatch(text, meanwhile);
  ForgetCommand();
  if (!abi::StubDeletesFactories(release_)) return;
  for (const abi::Origin& origin : origins) DeleteFactory(origin.response_factory);
}

void Deputy::Acknowledge(const shm::Block& message, std::uint32_t own) {
  const CommandKind kind =
      abi::StreamMessagesHaveCommands(release_) ? KindOf(message) : CommandKind::kInferStreamExecResponse;
  if (kind == CommandKind::kCudaPoolInitializeRequest)
    throw shm::Abandoned("it was attaching memory of a GPU");
  if (kind != CommandKind::kInferStreamExecResponse) return;
  if (abi::StreamsAreAcknowledgedTwice(release_)) throw shm::Abandoned("it was reading a response");
  const auto* record = message.As<records::Message>();
  const shm::Block batch = region_.Load(record->args);
  const shm::Block mutex = region_.Load(record->response_mutex);
  const shm::Block condition = region_.Load(record->response_cond);
  {
    const shm::LockAnyway lock(mutex.As<pthread_mutex_t>(), "a response");
    batch.As<records::ResponseBatch23_04>()->waiting_on_stub = true;
  }
  const auto limit = std::chrono::steady_clock::now() + kForAcknowledgement;
  do {
    shm::EndWaits(condition.As<pthread_cond_t>());
    std::this_thread::sleep_for(kTick);
  } while (region_.References(message.handle()) > own && std::chrono::steady_clock::now() < limit);
}

void Deputy::DismissServerMessages() {
  while (server_messages_.HasValueWithin(std::chrono::milliseconds(0))) {
    const Handle message = server_messages_.Pop();
    if (message != records::kDummy) Acknowledge(region_.Load(message), 1);
  }
}

void Deputy::AnswerBatch(abi::Writer& writer, const records::ResponseBatch24_10& batch,
                         const Meanwhile& meanwhile) {
  Handle message;
  if (abi::AnswersInOneBlock(release_)) {
    const shm::Block& block = writer.Make(sizeof(records::Message) + sizeof(batch));
    const auto behind = static_cast<Handle>(sizeof(records::Message));
    *block.As<records::Message>() = MakeMessage(CommandKind::kExecuteResponse, block.handle() + behind);
    *block.As<records::ResponseBatch24_10>(sizeof(records::Message)) = batch;
    message = block.handle();
  } else {  // the layouts differ in the last field only
    const Handle record = writer.Put(batch).handle();
    message = writer.Put(MakeMessage(CommandKind::kExecuteResponse, record)).handle();
  }
  writer.Finish();
  answers_.PushWithin(kLimit, message);
  TakeAcknowledgement(meanwhile);
}

Handle Deputy::WriteErrorResponse(abi::Writer& writer, const std::string& text) const {
  const Handle message = writer.WriteString(text);
  const auto internal = static_cast<std::int32_t>(abi::ErrorCode::kInternal);
  const Handle error =
      abi::ErrorsHaveCodes(release_) ? writer.Put(records::Error{internal, message}).handle() : message;
  const auto fill = [&](auto record) {
    record.has_error = record.is_error_set = record.is_last_response = true;
    record.error = error;
    return writer.Put(record).handle();
  };
  return abi::HasResponseParameters(release_) ? fill(records::Response25_02{})
                                              : fill(records::Response23_04{});
}

template <typename Record>
void Deputy::SendTurn(abi::Writer& writer, const abi::OpenRequest& request, Handle response) {
  Record record{};
  record.request_address = request.request;
  record.response_factory_address = request.response_factory;
  record.response = response;
  record.flags = abi::kResponseFinal;
  const shm::Block& block = writer.Make(sizeof(record), shm::kRecordAlignment);
  Record* shared = Share(block, record);
  const Handle message = writer.Put(MakeMessage(CommandKind::kResponseSend, block.handle())).handle();
  writer.Finish();
  (abi::HasRequestQueue(release_) ? to_server_ : answers_).PushWithin(kLimit, message);
  {
    shm::Lock lock(&shared->mutex);
    Await(shared->is_stub_turn, lock, &shared->condition);
    shared->is_stub_turn = false;
  }
  shm::Notify(&shared->condition);
}

void Deputy::SendError(const abi::OpenRequest& request, const std::string& text) {
  {
    abi::Writer writer(region_);
    const Handle response = WriteErrorResponse(writer, text);
    if (abi::HasBufferRecord(release_)) {
      SendTurn<records::ResponseSend23_06>(writer, request, response);
    } else {
      SendTurn<records::ResponseSend23_04>(writer, request, response);
    }
  }
  if (abi::StubDeletesFactories(release_)) DeleteFactory(request.response_factory);
}

void Deputy::DeleteFactory(std::int64_t response_factory) {
  constexpr auto kKind = CommandKind::kResponseFactoryCleanup;
  if (numbers_.Of(kKind) == abi::CommandNumbers::kNone || response_factory == 0) return;
  abi::Writer writer(region_);
  records::Cleanup record{};
  record.id = response_factory;
  const shm::Block& block = writer.Put(record);
  const Call call = MakeCall(writer, kKind, block.handle());
  const auto* cleanup = block.As<records::Cleanup>();
  writer.Finish();
  shm::Lock lock(call.mutex);
  to_server_.PushWithin(kLimit, call.message);
  Await(cleanup->waiting_on_stub, lock, call.condition);
}

}  // namespace envpack::front
