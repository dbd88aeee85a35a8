#include "front/recovery/pending.h"

#include <pthread.h>

#include <algorithm>

#include "abi/records.h"
#include "abi/traits.h"
#include "shm/abandoned.h"

namespace envpack::front {

namespace {

using abi::Exchange;
using abi::Handle;
namespace records = abi::records;

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

Pending::Pending(Deputy& deputy, abi::Journal& notes, abi::Journal& journal, const Exchange& exchange,
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

bool Pending::IsReleased() {
  return deputy_->region().References((IsInference() ? message_ : record_).handle()) <= own_references_;
}

bool Pending::AdvanceTurn() {
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

bool Pending::AdvanceReport() {
  const shm::LockAnyway lock(mutex_.As<pthread_mutex_t>(), "a message");
  if (!record_.As<Turn>()->is_stub_turn) return false;
  if (final_of_ != 0) notes_->Close(final_of_);
  return true;
}

// The server's thread waits when it has answered, and no flag says so.
bool Pending::AdvanceInference() {
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
void Pending::TakeFirstResponse() {
  const shm::Block answer = deputy_->region().Load(message_.As<records::Message>()->response_handle);
  const shm::Block block = deputy_->region().Load(answer.As<records::Message>()->args);
  if (block.As<records::ResponseBatch23_04>()->has_error) return;
  const std::size_t behind = abi::AnswersInOneBlock(deputy_->release()) ? sizeof(records::ResponseBatch24_10)
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

bool Pending::Advance() {
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

}  // namespace envpack::front
