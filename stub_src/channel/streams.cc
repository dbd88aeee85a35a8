#include "channel/streams.h"

#include <chrono>
#include <iterator>
#include <utility>

namespace envpack::channel {

namespace {

// How long the shutdown waits for streams that the model has abandoned.
constexpr std::chrono::seconds kTimeout(10);

// Arrival of a stream's first response. It is sent differently from the others, which may overtake it.
constexpr std::uint64_t kFirst = 0;

}  // namespace

void Stream::Put(std::uint64_t arrival, abi::InferResponse response) {
  {
    const std::lock_guard lock(mutex_);
    responses_.emplace(arrival, std::move(response));
  }
  filled_.notify_one();
}

abi::InferResponse Stream::Take() {
  std::unique_lock lock(mutex_);
  filled_.wait(lock, [this] { return !responses_.empty(); });
  return std::move(responses_.extract(responses_.begin()).mapped());
}

Streams::Opened Streams::Start(const abi::Request& request) {
  {
    const std::lock_guard lock(mutex_);
    ++starting_;
  }
  abi::InferResponse first;
  const auto failure = abi::Attempt([&] { first = wire_.Infer(request, true); });
  if (failure) first.response.error = abi::Error{failure->text};
  const std::lock_guard lock(mutex_);
  --starting_;
  return Open(std::move(first));
}

// `entry` is a stream that has just begun, or null if it failed to begin. The mutex must be held.
void Streams::TakeEarlyErrors(abi::StreamId id, Entry* entry) {
  for (auto early = early_errors_.begin(); early != early_errors_.end();) {
    if (entry != nullptr && early->arrival < entry->ended_at) {
      if (early->is_certain) {
        early->error.stream = id;
        if (early->error.is_last) entry->ended_at = early->arrival;
      }
      entry->stream->Put(early->arrival, early->error);
    }
    early = --early->candidates == 0 ? early_errors_.erase(early) : std::next(early);
  }
}

// The mutex must be held.
Streams::Opened Streams::Open(abi::InferResponse first) {
  const abi::StreamId id = first.stream;
  if (id == 0) {
    // Later responses cannot be assigned to this stream, so it contains the first response only.
    if (!std::exchange(first.is_last, true)) ++unnamed_;
    TakeEarlyErrors(0, nullptr);
    auto stream = std::make_shared<Stream>();
    stream->Put(kFirst, std::move(first));
    return {id, std::move(stream)};
  }
  Entry& entry = entries_[id];  // may exist: later responses can overtake the first
  entry.has_begun = true;
  if (first.is_last) entry.ended_at = kFirst;
  entry.stream->Put(kFirst, std::move(first));
  TakeEarlyErrors(id, &entry);
  return {id, entry.stream};
}

// The mutex must be held.
Streams::Entry& Streams::Find(abi::StreamId id) {
  const auto [found, is_new] = entries_.try_emplace(id);
  if (is_new && wire_.IsOldStream(id)) {
    found->second.has_begun = found->second.is_abandoned = true;
    return found->second;
  }
  // An id that no pending request can have belongs to a stream that began with an error.
  if (is_new && starting_ == 0 && unnamed_ > 0) {
    --unnamed_;
    found->second.has_begun = found->second.is_abandoned = true;
  }
  return found->second;
}

// Returns whether the stream must be closed. The mutex must be held.
bool Streams::DeliverTo(Entry& entry, abi::InferResponse response) {
  if (response.is_last) entry.ended_at = arrivals_;
  if (entry.is_abandoned) return entry.HasEnded();
  entry.stream->Put(arrivals_, std::move(response));
  return false;
}

// Returns whether `ended` must be closed. The mutex must be held.
bool Streams::DeliverWithoutId(abi::InferResponse error, abi::StreamId* ended) {
  std::vector<Entries::value_type*> open;
  for (auto& named : entries_) {
    if (named.second.has_begun && !named.second.HasEnded()) open.push_back(&named);
  }
  if (open.size() == 1 && starting_ == 0) {
    *ended = error.stream = open.front()->first;
    return DeliverTo(open.front()->second, std::move(error));
  }
  const bool is_certain = open.empty() && starting_ == 1;
  if (error.is_last && !is_certain) ++lost_ends_;
  if (starting_ > 0) early_errors_.push_back({arrivals_, error, starting_, is_certain});
  for (auto* named : open) {
    if (!named->second.is_abandoned) named->second.stream->Put(arrivals_, error);
  }
  return false;
}

void Streams::Deliver(abi::InferResponse response) {
  abi::StreamId id = response.stream;
  {
    const std::lock_guard lock(mutex_);
    ++arrivals_;
    const bool closes =
        id == 0 ? DeliverWithoutId(std::move(response), &id) : DeliverTo(Find(id), std::move(response));
    if (!closes) return;
  }
  Close(id);
}

void Streams::Close(abi::StreamId id) noexcept {
  {
    std::unique_lock lock(mutex_);
    closed_.wait(lock, [&] {
      const auto found = entries_.find(id);
      return found == entries_.end() || found->second.cancelling == 0;
    });
    if (entries_.erase(id) == 0) return;
    unsent_ends_.push_back(id);
  }
  SendEnds();
  closed_.notify_all();
}

void Streams::SendEnds() noexcept {
  std::vector<abi::StreamId> ends;
  {
    const std::lock_guard lock(mutex_);
    ends.swap(unsent_ends_);
  }
  const auto send = [&] {
    for (; !ends.empty(); ends.pop_back()) wire_.EndStream(ends.back());
  };
  if (!abi::Attempt(send)) return;
  const std::lock_guard lock(mutex_);
  unsent_ends_.insert(unsent_ends_.end(), ends.begin(), ends.end());
}

void Streams::Cancel(abi::StreamId id) {
  {
    const std::lock_guard lock(mutex_);
    const auto found = entries_.find(id);
    if (found == entries_.end()) return;
    ++found->second.cancelling;
  }
  try {
    wire_.CancelStream(id);
  } catch (...) {
    EndCancelling(id);
    throw;
  }
  EndCancelling(id);
}

void Streams::EndCancelling(abi::StreamId id) {
  {
    const std::lock_guard lock(mutex_);
    --entries_.at(id).cancelling;
  }
  closed_.notify_all();
}

void Streams::Abandon(abi::StreamId id) noexcept {
  {
    const std::lock_guard lock(mutex_);
    const auto found = entries_.find(id);
    if (found == entries_.end()) return;
    found->second.is_abandoned = true;
    if (!found->second.HasEnded()) return;
  }
  Close(id);
}

void Streams::End() {
  std::vector<abi::StreamId> open;
  const auto list = [&] {
    open.clear();
    for (const auto& named : entries_) open.push_back(named.first);
  };
  std::unique_lock lock(mutex_);
  list();
  lock.unlock();
  for (const abi::StreamId id : open) Abandon(id);
  lock.lock();
  closed_.wait_for(lock, kTimeout, [this] { return entries_.size() <= lost_ends_; });
  list();
  lock.unlock();
  for (const abi::StreamId id : open) Close(id);
  SendEnds();
}

}  // namespace envpack::channel
