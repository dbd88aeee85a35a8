#include "abi/journal.h"

#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>

#include "base/forks.h"

namespace envpack::abi {

namespace {

// A value that no other thread notes meanwhile: a slot is taken by this before it is filled.
template <typename Slots, typename Value>
auto* TakeSlot(Slots& slots, Value value) {
  for (auto& slot : slots) {
    Value expected{};
    if (slot.compare_exchange_strong(expected, value)) return &slot;
  }
  return static_cast<typename Slots::value_type*>(nullptr);
}

constexpr char kCannotShare[] = "cannot share memory with the model's process";

std::shared_ptr<Journal> Map(int flags, int descriptor) {
  void* memory = mmap(nullptr, sizeof(Journal), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE | flags,
                      descriptor, 0);
  if (memory == MAP_FAILED) FailBySystem(kCannotShare);
  return {static_cast<Journal*>(memory), [](Journal* mapped) { munmap(mapped, sizeof(Journal)); }};
}

// The memory of a new journal is zero.
std::shared_ptr<Journal> Empty(std::shared_ptr<Journal> journal) {
  journal->command = journal->acknowledged = journal->server_message = kNothing;
  return journal;
}

}  // namespace

std::shared_ptr<Journal> MakeJournal() { return Empty(Map(MAP_ANONYMOUS, -1)); }

JournalFile::JournalFile() : file_(MakeMemoryFile("journal", kCannotShare)) {
  if (ftruncate(file_.number(), sizeof(Journal)) != 0) FailBySystem(kCannotShare);
  journal_ = Empty(OpenJournal(file_.number()));
}

std::shared_ptr<Journal> OpenJournal(int descriptor) { return Map(0, descriptor); }

void Journal::Clear() {
  stage = kStarting;
  command = acknowledged = server_message = kNothing;
  has_listed = is_answering = answer_pushed = batch_size = unlisted = 0;
  executing_since = answer = 0;
  device_buffers = 0;
  for (auto& each : marks) each = 0;
  for (Exchange& exchange : exchanges) exchange.kind = exchange.pushed = 0;
  for (std::uint32_t i = 0; i < used_requests; ++i) requests[i].state = OpenRequest::kFree;
  used_requests = 0;
  for (auto& stream : streams) stream = 0;
  ledger.Clear();
}

void Journal::Reach(Stage reached) {
  stage = reached;
  syscall(SYS_futex, &stage, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void Journal::AwaitEndOf(Stage left, std::chrono::milliseconds limit) const {
  timespec most{};
  most.tv_nsec = std::chrono::nanoseconds(limit).count();
  syscall(SYS_futex, &stage, FUTEX_WAIT, left, &most, nullptr, 0);
}

void Journal::ListRequests(const std::vector<Request>& batch) {
  batch_size = static_cast<std::uint32_t>(batch.size());
  for (std::uint32_t i = 0; i < batch.size(); ++i) AddRequest(batch[i].origin, i);
  has_listed = 1;
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  executing_since = now.tv_sec * 1'000'000'000LL + now.tv_nsec;
}

// Requests are added by the main thread only.
void Journal::AddRequest(const Origin& origin, std::uint32_t position) {
  const auto end = requests.begin() + used_requests;
  auto entry = std::find_if(requests.begin(), end,
                            [](const OpenRequest& each) { return each.state == OpenRequest::kFree; });
  if (entry == end) {
    if (used_requests == kRequests) {
      ++unlisted;
      return;
    }
    ++used_requests;
  }
  entry->request = origin.request;
  entry->response_factory = origin.response_factory;
  entry->position = position;
  entry->is_current = 1;
  entry->is_rescheduled = 0;
  entry->state = OpenRequest::kOpen;
}

OpenRequest* Journal::Find(std::int64_t request) {
  for (std::uint32_t i = 0; i < used_requests; ++i) {
    if (requests[i].state != OpenRequest::kFree && requests[i].request == request) return &requests[i];
  }
  return nullptr;
}

void Journal::Close(std::int64_t request) {
  if (forks::Depth() > 0) return;
  if (OpenRequest* entry = Find(request)) entry->state = OpenRequest::kFree;
}

void Journal::Finish(std::int64_t request, bool deletes_factory) {
  if (forks::Depth() > 0) return;
  OpenRequest* entry = Find(request);
  if (entry == nullptr) return;
  const bool is_closed = !deletes_factory || entry->response_factory == 0;
  entry->state = is_closed ? OpenRequest::kFree : OpenRequest::kFinished;
}

void Journal::EndBatch() {
  for (std::uint32_t i = 0; i < used_requests; ++i) {
    if (requests[i].state == OpenRequest::kInAnswer) requests[i].state = OpenRequest::kFree;
    if (requests[i].state == OpenRequest::kFailing) requests[i].state = OpenRequest::kFinished;
    requests[i].is_current = 0;
  }
  while (used_requests > 0 && requests[used_requests - 1].state == OpenRequest::kFree) --used_requests;
  has_listed = 0;
  command = kNothing;
  is_answering = 0;
}

void Journal::OpenStream(StreamId stream) {
  if (stream != 0 && TakeSlot(streams, stream) == nullptr) ++unlisted;
}

void Journal::CloseStream(StreamId stream) {
  for (auto* list : {&streams, &old_streams}) {
    const auto found = std::find(list->begin(), list->end(), stream);
    if (stream != 0 && found != list->end()) *found = 0;
  }
}

void Journal::KeepStream(StreamId stream) {
  if (stream == 0) return;
  TakeSlot(old_streams, stream);
  has_old_streams = 1;
}

bool Journal::IsOldStream(StreamId stream) const {
  return has_old_streams != 0 && stream != 0 &&
         std::find(old_streams.begin(), old_streams.end(), stream) != old_streams.end();
}

NotedExchange::NotedExchange(Journal& journal, Exchange::Kind kind, Handle message, Handle record)
    : journal_(journal), exchange_(&unlisted_) {
  const bool is_forked = forks::Depth() > 0;
  for (Exchange& exchange : journal.exchanges) {
    std::uint32_t free = Exchange::kFree;
    if (is_forked || !exchange.kind.compare_exchange_strong(free, Exchange::kImpossible)) continue;
    exchange_ = &exchange;
    break;
  }
  if (exchange_ == &unlisted_ && !is_forked) ++journal_.unlisted;
  exchange_->is_read = exchange_->waits = 0;
  exchange_->message = message;
  exchange_->record = record;
  exchange_->mutex = exchange_->condition = 0;
  exchange_->final_of = 0;
  exchange_->kind = kind;
}

NotedExchange::~NotedExchange() {
  if (exchange_ == &unlisted_) {
    if (forks::Depth() == 0) --journal_.unlisted;
    return;
  }
  exchange_->pushed = 0;
  exchange_->kind = Exchange::kFree;
}

}  // namespace envpack::abi
