#include "front/recovery/take_over.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "abi/records.h"
#include "abi/traits.h"
#include "shm/abandoned.h"

namespace envpack::front {

namespace {

using abi::CommandKind;
using abi::Exchange;
using abi::OpenRequest;
namespace records = abi::records;
using Clock = std::chrono::steady_clock;

// The server needs microseconds, but may be busy.
constexpr std::chrono::seconds kLimit(10);
constexpr std::chrono::milliseconds kTick(1);

}  // namespace

TakeOver::TakeOver(Deputy& deputy, abi::Journal& journal, const std::string& error)
    : deputy_(deputy), journal_(journal) {
  Check();
  SettleQueues();
  held_ = journal_.ledger.Held();
  ListExchanges();
  AcknowledgeServerMessage();
  EndExchanges();
  AnswerBatch(error);
  AnswerRequests(error);
  KeepStreams();
  journal_.Clear();
}

void TakeOver::Check() {
  deputy_.region().CheckLock();
  if (journal_.device_buffers > 0) throw shm::Abandoned("it had tensors of the server's on a GPU");
  CheckThatAllIsNoted();
}

void TakeOver::CheckThatAllIsNoted() const {
  if (journal_.unlisted > 0 || !journal_.ledger.IsComplete())
    throw shm::Abandoned("it held more than is noted");
}

void TakeOver::SettleQueues() {
  for (Exchange& exchange : journal_.exchanges) {
    if (exchange.kind == Exchange::kFree || exchange.pushed != 0) continue;
    auto& queue = abi::HasRequestQueue(deputy_.release()) ? deputy_.to_server() : deputy_.answers();
    exchange.pushed =
        queue.WasLeftWith(exchange.message) || deputy_.to_server().WasLeftWith(exchange.message);
  }
  if (journal_.is_answering != 0 && journal_.answer_pushed == 0) {
    journal_.answer_pushed = deputy_.answers().WasLeftWith(journal_.answer);
  }
  Settle(deputy_.answers(), journal_.mark(abi::QueueId::kAnswers));
  Settle(deputy_.to_server(), journal_.mark(abi::QueueId::kToServer));
  Settle(deputy_.released(), journal_.mark(abi::QueueId::kReleased));
  if (Settle(deputy_.server_messages(), journal_.mark(abi::QueueId::kServerMessages)) > 0) {
    journal_.server_message = abi::kNothing;
  }
  if (Settle(deputy_.commands(), journal_.mark(abi::QueueId::kCommands)) > 0) {
    (journal_.is_answering != 0 ? journal_.acknowledged : journal_.command) = abi::kNothing;
  }
}

void TakeOver::ListExchanges() {
  for (const Exchange& exchange : journal_.exchanges) {
    if (exchange.kind == Exchange::kFree || exchange.pushed == 0) continue;  // the server has not seen it
    pending_.emplace_back(deputy_, journal_, exchange, held_);
  }
}

// Those that only need the server's attention. Until then its thread may not react to anything else.
void TakeOver::EndExchanges() {
  const auto limit = Clock::now() + kLimit;
  const auto is_short = [](const Pending& each) { return !each.IsInference(); };
  Advance();
  while (std::any_of(pending_.begin(), pending_.end(), is_short)) {
    if (Clock::now() > limit) throw shm::Abandoned("the server does not answer a message of it");
    std::this_thread::sleep_for(kTick);
    Advance();
  }
}

// The server's thread waits until the message has been read. Only readiness probes have a limit.
void TakeOver::AcknowledgeServerMessage() {
  if (journal_.server_message == abi::kNothing || journal_.server_message == records::kDummy) return;
  const shm::Block message = deputy_.region().Load(journal_.server_message);
  const CommandKind kind = abi::StreamMessagesHaveCommands(deputy_.release())
                               ? deputy_.KindOf(message)
                               : CommandKind::kInferStreamExecResponse;
  if (kind == CommandKind::kCudaPoolInitializeRequest)
    throw shm::Abandoned("it was attaching memory of a GPU");
  if (kind != CommandKind::kInferStreamExecResponse) return;
  if (abi::StreamsAreAcknowledgedTwice(deputy_.release())) throw shm::Abandoned("it was reading a response");
  const auto* record = message.As<records::Message>();
  const shm::Block batch = deputy_.region().Load(record->args);
  const shm::Block mutex = deputy_.region().Load(record->response_mutex);
  const shm::Block condition = deputy_.region().Load(record->response_cond);
  const shm::LockAnyway lock(mutex.As<pthread_mutex_t>(), "a response");
  batch.As<records::ResponseBatch23_04>()->waiting_on_stub = true;
  shm::Notify(condition.As<pthread_cond_t>());
}

void TakeOver::AnswerBatch(const std::string& error) {
  if (journal_.command == abi::kNothing) return;
  if (journal_.is_answering != 0 && journal_.answer_pushed != 0) {
    if (journal_.acknowledged == abi::kNothing) deputy_.TakeAcknowledgement([this] { Advance(); });
    journal_.EndBatch();
    return;
  }
  const shm::Block command = deputy_.region().Load(journal_.command);
  const CommandKind kind = deputy_.KindOf(command);
  if (kind == CommandKind::kFinalizeRequest) return deputy_.AnswerFinalizeOf(command);
  if (kind != CommandKind::kExecuteRequest) return;
  if (journal_.has_listed == 0) ListBatch(command);
  FailBatch(error);
}

// The worker died before it had noted all requests that it was reading.
void TakeOver::ListBatch(const shm::Block& command) {
  for (OpenRequest* noted : OpenRequests(true)) noted->state = OpenRequest::kFree;
  const std::vector<abi::Origin> origins = deputy_.OriginsOf(command);
  journal_.batch_size = static_cast<std::uint32_t>(origins.size());
  for (std::uint32_t i = 0; i < origins.size(); ++i) journal_.AddRequest(origins[i], i);
  CheckThatAllIsNoted();
}

// If a request has had its final response, the batch can no longer fail as a whole.
void TakeOver::FailBatch(const std::string& error) {
  const std::vector<OpenRequest*> open = OpenRequests(true);
  const auto advance = [this] { Advance(); };
  if (open.size() < journal_.batch_size) {
    for (const OpenRequest* request : open) deputy_.SendError(*request, error);
    deputy_.EndBatch(advance);
  } else {
    deputy_.FailBatch(error, advance);
    if (abi::StubDeletesFactories(deputy_.release())) {
      for (const OpenRequest* request : open) deputy_.DeleteFactory(request->response_factory);
    }
  }
  for (OpenRequest* request : open) request->state = OpenRequest::kFree;
  journal_.EndBatch();
}

void TakeOver::AnswerRequests(const std::string& error) {
  for (const OpenRequest* request : OpenRequests(false)) deputy_.SendError(*request, error);
  for (std::uint32_t i = 0; i < journal_.used_requests; ++i) {
    const OpenRequest& request = journal_.requests[i];
    if (request.state == OpenRequest::kFinished) deputy_.DeleteFactory(request.response_factory);
  }
}

std::vector<OpenRequest*> TakeOver::OpenRequests(bool current) const {
  std::vector<OpenRequest*> open;
  for (std::uint32_t i = 0; i < journal_.used_requests; ++i) {
    OpenRequest& request = journal_.requests[i];
    const bool is_current = request.is_current != 0;
    const bool is_open = request.state != OpenRequest::kFree && request.state != OpenRequest::kFinished;
    if (is_open && is_current == current) open.push_back(&request);
  }
  return open;
}

void TakeOver::KeepStreams() {
  for (const auto& stream : journal_.streams) journal_.KeepStream(stream);
}

bool TakeOver::Advance() {
  const auto is_done = [](Pending& each) { return each.Advance(); };
  pending_.erase(std::remove_if(pending_.begin(), pending_.end(), is_done), pending_.end());
  return pending_.empty();
}

void TakeOver::GiveBack() noexcept {
  deputy_.region().ReleaseFor(held_);
  held_.clear();
}

}  // namespace envpack::front
