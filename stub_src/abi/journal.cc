#include "abi/journal.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstring>
#include <initializer_list>

#include "base/forks.h"

namespace envpack::abi {

namespace {

// Notes a stream in a slot that no other thread takes meanwhile. Returns false if there is none.
template <typename Slots>
bool TakeSlot(Slots& slots, StreamId stream) {
  return std::any_of(slots.begin(), slots.end(), [&](auto& slot) {
    StreamId none = 0;
    return slot.compare_exchange_strong(none, stream);
  });
}

// A checksum of an entry: bytes that a damaged model has written there do not match it.
std::uint64_t SealOf(std::initializer_list<std::int64_t> words) {
  std::uint64_t seal = 0x9E3779B97F4A7C15;
  for (const std::int64_t word : words) {
    seal = (seal ^ static_cast<std::uint64_t>(word)) * 0xD6E8FEB86659FD93;
    seal ^= seal >> 32;
  }
  return seal;
}

std::uint64_t SealOf(const Exchange::Blocks& blocks) {
  return SealOf({blocks.message, blocks.record, blocks.mutex, blocks.condition, blocks.final_of});
}

std::uint64_t SealOf(const OpenRequest& request) {
  return SealOf({request.request, request.response_factory, request.position});
}

// Of an entry that is about to be filled.
constexpr std::uint64_t kNoSeal = 1;

bool IsSound(const Exchange& exchange) {
  if (exchange.kind == Exchange::kFree) return true;
  if (exchange.kind > Exchange::kImpossible || exchange.pushed > 1 || exchange.is_read > 1) return false;
  const bool is_being_filled = exchange.kind == Exchange::kImpossible && exchange.pushed == 0;
  return is_being_filled || exchange.seal == SealOf(exchange.blocks);
}

bool IsSound(const OpenRequest& request) {
  if (request.state == OpenRequest::kFree && request.seal == kNoSeal) return true;
  return request.state <= OpenRequest::kFinished && request.is_current <= 1 && request.is_rescheduled <= 1 &&
         request.seal == SealOf(request);
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
  // Or else a worker could cut off what this process has mapped.
  fcntl(file_.number(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  Empty(journal());
}

const std::shared_ptr<Journal>& JournalFile::journal() {
  if (journal_ == nullptr) journal_ = Map(0, file_.number());
  return journal_;
}

std::shared_ptr<Journal> ReadJournal(const Journal& noted) {
  auto copy = MakeJournal();
  std::memcpy(static_cast<void*>(copy.get()), &noted, offsetof(Journal, requests));
  const std::uint32_t used = copy->used_requests;
  const bool has_sound_counts = used <= Journal::kRequests && copy->unlisted <= Journal::kMostUnlisted &&
                                copy->device_buffers >= 0 && copy->device_buffers <= Journal::kMostUnlisted;
  const bool has_sound_flags = copy->stage <= Journal::kEnding && copy->has_listed <= 1 &&
                               copy->is_answering <= 1 && copy->answer_pushed <= 1;
  if (!has_sound_counts || !has_sound_flags) return nullptr;
  std::memcpy(static_cast<void*>(copy->requests.data()), noted.requests.data(), used * sizeof(OpenRequest));
  const auto is_sound = [](const auto& each) { return IsSound(each); };
  const auto begin = copy->requests.begin();
  const bool is_sound_as_whole = std::all_of(begin, begin + used, is_sound) &&
                                 std::all_of(copy->exchanges.begin(), copy->exchanges.end(), is_sound);
  return is_sound_as_whole ? copy : nullptr;
}

void Journal::Clear() {
  stage = kStarting;
  command = acknowledged = server_message = kNothing;
  has_listed = is_answering = answer_pushed = unlisted = 0;
  executing_since = answer = 0;
  device_buffers = 0;
  for (auto& each : marks) each = 0;
  for (Exchange& exchange : exchanges) exchange.kind = exchange.pushed = 0;
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
  for (std::uint32_t i = 0; i < batch.size(); ++i) AddRequest(batch[i].origin, i);
  has_listed = 1;
  executing_since = std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Requests are added by the main thread only.
void Journal::AddRequest(const Origin& origin, std::uint32_t position) {
  const auto end = requests.begin() + used_requests;
  auto entry = std::find_if(requests.begin(), end,
                            [](const OpenRequest& each) { return each.state == OpenRequest::kFree; });
  if (entry == requests.end()) {
    ++unlisted;
    return;
  }
  entry->state = OpenRequest::kFree;
  entry->seal = kNoSeal;
  entry->request = origin.request;
  entry->response_factory = origin.response_factory;
  entry->position = position;
  entry->is_current = 1;
  entry->is_rescheduled = 0;
  entry->seal = SealOf(*entry);
  entry->state = OpenRequest::kOpen;
  if (entry == end) ++used_requests;
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
  if (stream != 0 && !TakeSlot(streams, stream)) ++unlisted;
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

NotedExchange::NotedExchange(Journal& journal, Exchange::Kind kind, const Exchange::Blocks& blocks)
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
  exchange_->blocks = blocks;
  exchange_->seal = SealOf(blocks);
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
