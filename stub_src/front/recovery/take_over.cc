#include "front/recovery/take_over.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "abi/records.h"
#include "abi/traits.h"
#include "base/output.h"
#include "shm/abandoned.h"

namespace envpack::front {

namespace {

using abi::CommandKind;
using abi::Exchange;
using abi::Handle;
using abi::OpenRequest;
namespace records = abi::records;
using Clock = std::chrono::steady_clock;

// The server needs microseconds, but may be busy.
constexpr std::chrono::seconds kLimit(10);
constexpr std::chrono::milliseconds kTick(1);
constexpr std::chrono::seconds kForAcknowledgement(1);

// Otherwise the server has not seen it.
bool IsOpen(const Exchange& exchange) { return exchange.kind != Exchange::kFree && exchange.pushed != 0; }

// How the records of exchanges begin that both processes wait in.
struct Turn {
  pthread_mutex_t mutex;
  pthread_cond_t condition;
  records::Flag is_stub_turn;  // or, in other records, waiting_on_stub
};
template <typename... Records>
constexpr bool kBeginLikeTurn = ((offsetof(Turn, is_stub_turn) == offsetof(Records, waiting_on_stub)) && ...);
static_assert(kBeginLikeTurn<records::Log, records::CustomMetrics, records::ModelLoader, records::IsCancelled,
                             records::CancelStream, records::Cleanup>);
static_assert(offsetof(Turn, is_stub_turn) == offsetof(records::ResponseSend23_04, is_stub_turn) &&
              offsetof(Turn, is_stub_turn) == offsetof(records::ResponseSend23_06, is_stub_turn));

shm::Block LoadIf(shm::Region& region, Handle handle) {
  return handle != 0 ? region.Load(handle) : shm::Block();
}

}  // namespace

// An exchange in the middle of which a worker has died. The message has been sent. The server's thread waits
// for the worker, or will when it has processed it.
class Pending {
 public:
  // `notes` are the dead worker's, `held` the blocks that it held; `journal` is for the next worker.
  Pending(Deputy& deputy, abi::Journal& notes, abi::Journal& journal, const Exchange& exchange,
          const std::vector<Handle>& held)
      : deputy_(&deputy),
        notes_(&notes),
        journal_(&journal),
        kind_(static_cast<Exchange::Kind>(exchange.kind.load())),
        was_read_(exchange.is_read != 0),
        final_of_(exchange.blocks.final_of),
        waits_(exchange.waits),
        message_(deputy.region().Load(exchange.blocks.message)),
        record_(deputy.region().Load(exchange.blocks.record)),
        mutex_(LoadIf(deputy.region(), exchange.blocks.mutex)),
        condition_(LoadIf(deputy.region(), exchange.blocks.condition)) {
    const Handle last = (IsInference() ? message_ : record_).handle();
    own_references_ = 1 + static_cast<std::uint32_t>(std::count(held.begin(), held.end(), last));
    // It died before it waited, or before it could note that it had waited.
    if (mutex_ && waits_ > 0 && !was_read_ && shm::IsAbandoned(*mutex_.As<pthread_mutex_t>())) --waits_;
  }

  // Whether it may take as long as a request to another model.
  bool IsInference() const { return kind_ == Exchange::kInference || kind_ == Exchange::kStream; }

  // Does what the worker would have done next, without waiting for the server. Returns whether the exchange
  // has ended. Throws shm::Abandoned.
  bool Advance() {
    switch (kind_) {
      case Exchange::kAnswered:
      case Exchange::kTurns:
        return AdvanceTurn();
      case Exchange::kReported:
        return AdvanceReport();
      case Exchange::kInference:
      case Exchange::kStream:
        return AdvanceInference();
      default:
        throw shm::Abandoned("it was copying tensors of a GPU");
    }
  }

 private:
  bool AdvanceTurn() {
    auto* turn = record_.As<Turn>();
    if (!is_answered_) {
      const shm::LockAnyway lock(&turn->mutex, "a message");
      if (!turn->is_stub_turn && !was_read_) return false;
      if (final_of_ != 0) notes_->Finish(final_of_, abi::StubDeletesFactories(deputy_->release()));
      turn->is_stub_turn = false;
      is_answered_ = true;
    }
    shm::EndWaits(&turn->condition);
    return IsReleased();
  }

  bool AdvanceReport() {
    const shm::LockAnyway lock(mutex_.As<pthread_mutex_t>(), "a message");
    if (!record_.As<Turn>()->is_stub_turn) return false;
    if (final_of_ != 0) notes_->Close(final_of_);
    return true;
  }

  // The server's thread waits when it has answered, and no flag says so.
  bool AdvanceInference() {
    auto* condition = condition_.As<pthread_cond_t>();
    if (!is_answered_) {
      const shm::LockAnyway lock(mutex_.As<pthread_mutex_t>(), "a message");
      const bool has_handle = message_.As<records::Message>()->response_handle != 0;
      if (!has_handle || shm::WaitsBegun(*condition) <= waits_) return false;
      if (kind_ == Exchange::kStream) TakeFirstResponse();
      is_answered_ = true;
    }
    shm::EndWaits(condition);
    return IsReleased();
  }

  // Further responses go to the next worker, which does not know the stream.
  void TakeFirstResponse() {
    const shm::Block answer = deputy_->region().Load(message_.As<records::Message>()->response_handle);
    const shm::Block block = deputy_->region().Load(answer.As<records::Message>()->args);
    if (block.As<records::ResponseBatch23_04>()->has_error) return;
    const std::size_t behind = abi::AnswersInOneBlock(deputy_->release())
                                   ? sizeof(records::ResponseBatch24_10)
                                   : sizeof(records::ResponseBatch23_04);
    const shm::Block response = deputy_->region().Load(*block.As<Handle>(behind));
    const auto note = [&](const auto& record) {
      if (record.has_error && !abi::ErrorsHaveStreamId(deputy_->release())) return;
      if (!record.is_last_response) journal_->KeepStream(record.stream_id);
    };
    if (abi::HasResponseParameters(deputy_->release())) {
      note(*response.As<records::Response25_02>());
    } else {
      note(*response.As<records::Response23_04>());
    }
  }

  bool IsReleased() {
    return deputy_->region().References((IsInference() ? message_ : record_).handle()) <= own_references_;
  }

  Deputy* deputy_;
  abi::Journal* notes_;
  abi::Journal* journal_;
  Exchange::Kind kind_;
  bool was_read_;
  std::int64_t final_of_;
  std::uint64_t waits_;  // of the worker
  shm::Block message_;
  shm::Block record_;
  shm::Block mutex_;
  shm::Block condition_;
  std::uint32_t own_references_;  // to the block that the server gives back last
  bool is_answered_ = false;      // the server's thread has been released
};

TakeOver::~TakeOver() = default;

TakeOver::TakeOver(Deputy& deputy, abi::Journal& journal, const std::string& error)
    : deputy_(deputy), journal_(journal) {
  deputy_.region().CheckAll();
  ReadNotes();
  if (notes_) {
    ListExchanges();
    AcknowledgeServerMessage();
    EndExchanges();
    AnswerBatch(error);
    AnswerRequests(error);
    for (const auto& stream : notes_->streams) journal_.KeepStream(stream);
  } else {
    Print("a model's process has damaged its notes of what is open");
    FailLastCommand(error + ". It has damaged the memory that it shares with the stub.");
  }
  journal_.Clear();
}

// Without the list of what the worker held in the region, that is lost.
void TakeOver::ReadNotes() {
  notes_ = abi::ReadJournal(journal_);
  auto held = journal_.ledger.Held();
  SettleQueues();
  if (!notes_) return;
  const bool has_exchange = std::any_of(notes_->exchanges.begin(), notes_->exchanges.end(), IsOpen);
  if (!AgreesWithQueues() || (!held && has_exchange)) return notes_.reset();
  if (notes_->device_buffers > 0) throw shm::Abandoned("it had tensors of the server's on a GPU");
  CheckThatAllIsNoted();
  if (held) held_ = *std::move(held);
}

void TakeOver::CheckThatAllIsNoted() const {
  if (notes_->unlisted > 0) throw shm::Abandoned("it held more than is noted");
}

// The queues keep what each side has sent last.
bool TakeOver::AgreesWithQueues() {
  const bool has_answered = notes_->is_answering != 0 && notes_->answer_pushed != 0;
  const bool is_acknowledged = notes_->is_answering != 0 && notes_->acknowledged != abi::kNothing;
  if (notes_->command == abi::kNothing || is_acknowledged) {
    if (deputy_.HasOpenBatch()) return false;
  } else if (notes_->command != deputy_.commands().LastTaken()) {
    return false;
  }
  // In other releases further threads of the worker use this queue.
  const bool has_own_queue = abi::HasRequestQueue(deputy_.release());
  if (has_answered && has_own_queue && notes_->answer != deputy_.answers().LastPushed()) return false;
  const std::int64_t message = notes_->server_message;
  return message == abi::kNothing || deputy_.server_messages().MayHaveTakenLast(message);
}

// The server's last command, unless it has been answered: then the server acknowledges that soon. Which of
// the batch's response factories are left is not known.
void TakeOver::FailLastCommand(const std::string& error) {
  const Handle last = deputy_.commands().LastTaken();
  if (last == records::kDummy) return;
  if (deputy_.commands().HasValueWithin(kForAcknowledgement)) {
    if (deputy_.commands().Next() == records::kDummy) deputy_.commands().Pop();
    return;
  }
  if (deputy_.region().References(last) == 0) return;
  const shm::Block command = deputy_.region().Load(last);
  const CommandKind kind = deputy_.KindOf(command);
  if (kind == CommandKind::kFinalizeRequest) return deputy_.AnswerFinalizeOf(command);
  if (kind == CommandKind::kExecuteRequest) deputy_.FailBatch(error, [] {}, true);
}

// The worker may have died right after it had pushed something.
void TakeOver::CompleteNotes() {
  auto& requests = abi::HasRequestQueue(deputy_.release()) ? deputy_.to_server() : deputy_.answers();
  for (Exchange& exchange : notes_->exchanges) {
    if (exchange.kind == Exchange::kFree || exchange.pushed != 0) continue;
    const Handle message = exchange.blocks.message;
    exchange.pushed = requests.WasLeftWith(message) || deputy_.to_server().WasLeftWith(message);
  }
  if (notes_->is_answering != 0 && notes_->answer_pushed == 0) {
    notes_->answer_pushed = deputy_.answers().WasLeftWith(notes_->answer);
  }
}

void TakeOver::SettleQueues() {
  if (notes_) CompleteNotes();
  const auto settle = [&](shm::Queue& queue, abi::QueueId id) {
    return queue.Settle(notes_ ? notes_->mark(id)->load() : UINT32_MAX) > 0;
  };
  settle(deputy_.answers(), abi::QueueId::kAnswers);
  settle(deputy_.to_server(), abi::QueueId::kToServer);
  settle(deputy_.released(), abi::QueueId::kReleased);
  const bool has_message_back = settle(deputy_.server_messages(), abi::QueueId::kServerMessages);
  const bool has_command_back = settle(deputy_.commands(), abi::QueueId::kCommands);
  if (!notes_) return;
  if (has_message_back) notes_->server_message = abi::kNothing;
  if (has_command_back) {
    (notes_->is_answering != 0 ? notes_->acknowledged : notes_->command) = abi::kNothing;
  }
}

void TakeOver::ListExchanges() {
  for (const Exchange& exchange : notes_->exchanges) {
    if (IsOpen(exchange)) pending_.emplace_back(deputy_, *notes_, journal_, exchange, held_);
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

void TakeOver::AcknowledgeServerMessage() {
  if (notes_->server_message == abi::kNothing || notes_->server_message == records::kDummy) return;
  const shm::Block message = deputy_.region().Load(notes_->server_message);
  const auto held = std::count(held_.begin(), held_.end(), message.handle());
  deputy_.Acknowledge(message, 1 + static_cast<std::uint32_t>(held));
}

void TakeOver::AnswerBatch(const std::string& error) {
  if (notes_->command == abi::kNothing) return;
  if (notes_->is_answering != 0 && notes_->answer_pushed != 0) {
    if (notes_->acknowledged == abi::kNothing) deputy_.TakeAcknowledgement([this] { Advance(); });
    notes_->EndBatch();
    return;
  }
  const shm::Block command = deputy_.region().Load(notes_->command);
  const CommandKind kind = deputy_.KindOf(command);
  if (kind == CommandKind::kFinalizeRequest) return deputy_.AnswerFinalizeOf(command);
  if (kind != CommandKind::kExecuteRequest) return;
  const std::vector<abi::Origin> origins = deputy_.OriginsOf(command);
  if (notes_->has_listed == 0) ListBatch(origins);
  FailBatch(error, origins.size());
}

// The worker died before it had noted all requests that it was reading.
void TakeOver::ListBatch(const std::vector<abi::Origin>& origins) {
  for (OpenRequest* noted : OpenRequests(true)) noted->state = OpenRequest::kFree;
  for (std::uint32_t i = 0; i < origins.size(); ++i) notes_->AddRequest(origins[i], i);
  CheckThatAllIsNoted();
}

// If a request has had its final response, the batch can no longer fail as a whole.
void TakeOver::FailBatch(const std::string& error, std::size_t size) {
  const std::vector<OpenRequest*> open = OpenRequests(true);
  const auto advance = [this] { Advance(); };
  if (open.size() < size) {
    for (const OpenRequest* request : open) deputy_.SendError(*request, error);
    deputy_.EndBatch(advance);
  } else {
    deputy_.FailBatch(error, advance);
    if (abi::StubDeletesFactories(deputy_.release())) {
      for (const OpenRequest* request : open) deputy_.DeleteFactory(request->response_factory);
    }
  }
  for (OpenRequest* request : open) request->state = OpenRequest::kFree;
  notes_->EndBatch();
}

void TakeOver::AnswerRequests(const std::string& error) {
  for (const OpenRequest* request : OpenRequests(false)) deputy_.SendError(*request, error);
  for (std::uint32_t i = 0; i < notes_->used_requests; ++i) {
    const OpenRequest& request = notes_->requests[i];
    if (request.state == OpenRequest::kFinished) deputy_.DeleteFactory(request.response_factory);
  }
}

std::vector<OpenRequest*> TakeOver::OpenRequests(bool current) const {
  std::vector<OpenRequest*> open;
  for (std::uint32_t i = 0; i < notes_->used_requests; ++i) {
    OpenRequest& request = notes_->requests[i];
    const bool is_current = request.is_current != 0;
    const bool is_open = request.state != OpenRequest::kFree && request.state != OpenRequest::kFinished;
    if (is_open && is_current == current) open.push_back(&request);
  }
  return open;
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
