#include "shm/queue.h"

#include <string>
#include <thread>
#include <tuple>

#include "shm/abandoned.h"
#include "shm/sync.h"

namespace envpack::shm {

// Counts this thread for a scope.
class Queue::Inside {
 public:
  explicit Inside(QueueMark* mark) : mark_(mark) {
    if (mark_ != nullptr) ++*mark_;
  }
  ~Inside() {
    if (mark_ != nullptr) --*mark_;
  }
  Inside(Inside&&) = delete;

 private:
  QueueMark* mark_;
};

Queue::Queue(Region& region, Handle handle, QueueMark* mark) : record_(region.Load(handle)), mark_(mark) {
  const auto* record = record_.As<QueueRecord>();
  slots_ = region.Load(record->slots);
  size_ = record->size;
  if (size_ == 0 || size_ > region.Size() / sizeof(std::int64_t)) {
    throw CorruptRegion("a message queue claims " + std::to_string(size_) + " slots");
  }
  const auto values = static_cast<Handle>(size_ * sizeof(std::int64_t));
  const Handle distance = slots_.handle() - handle;
  if (distance < static_cast<Handle>(sizeof(QueueRecord)) && -distance < values) {  // over the mutex, for one
    throw CorruptRegion("a message queue keeps its values in its own record");
  }
  slots_.At(0, static_cast<std::size_t>(values));
}

void Queue::Push(std::int64_t value, std::atomic<std::uint32_t>* pushed) {
  WaitFor(&Record()->empty);
  Put(value, pushed);
}

void Queue::PushWithin(std::chrono::milliseconds limit, std::int64_t value) {
  if (!WaitFor(&Record()->empty, limit)) throw Abandoned("the server does not empty a queue");
  Put(value, nullptr);
}

// There is room.
void Queue::Put(std::int64_t value, std::atomic<std::uint32_t>* pushed) {
  auto* record = Record();
  const Inside inside(mark_);
  {
    const BriefLock lock(&record->mutex);
    *slots_.As<std::int64_t>(record->head % size_ * sizeof(value)) = value;
    record->head = static_cast<std::uint32_t>((record->head + 1) % size_);
    if (pushed != nullptr) *pushed = 1;
  }
  Post(&record->full);
}

std::int64_t Queue::Pop(std::atomic<std::int64_t>* taken) {
  auto* record = Record();
  WaitFor(&record->full);
  const Inside inside(mark_);
  std::int64_t value;
  {
    const BriefLock lock(&record->mutex);
    value = *slots_.As<std::int64_t>(record->tail % size_ * sizeof(value));
    if (taken != nullptr) *taken = value;
    record->tail = static_cast<std::uint32_t>((record->tail + 1) % size_);
  }
  Post(&record->empty);
  return value;
}

bool Queue::HasValueWithin(std::chrono::milliseconds limit) {
  auto* record = Record();
  if (!WaitFor(&record->full, limit)) return false;
  Post(&record->full);
  return true;
}

// What the record says at one time.
struct Queue::State {
  std::uint32_t entries;  // by their positions
  std::uint32_t full;     // the semaphores
  std::uint32_t empty;
  std::uint32_t room;

  bool IsSettled() const { return full == entries && empty == room; }
  // Whether the semaphores are as so many threads leave them that die in the middle.
  bool IsBehindBy(std::uint64_t threads) const {
    return full <= entries && empty <= room && entries - full + room - empty <= threads;
  }
};

Queue::State Queue::ReadState() const {
  auto* record = Record();
  const LockAnyway lock(&record->mutex, "a queue");
  const auto size = static_cast<std::uint32_t>(size_);
  const std::uint32_t head = record->head % size, tail = record->tail % size;
  int full = 0, empty = 0;
  sem_getvalue(&record->full, &full);
  sem_getvalue(&record->empty, &empty);
  std::uint32_t entries = (head + size - tail) % size;
  if (entries == 0 && empty == 0) entries = size;  // both positions are equal in a full queue, too
  return {entries, static_cast<std::uint32_t>(full), static_cast<std::uint32_t>(empty), size - entries};
}

std::uint32_t Queue::Settle(std::uint32_t mark) {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::milliseconds kPause(1),
      kStable(100);  // the server needs microseconds for an operation
  constexpr std::chrono::seconds kStableUnmarked(1), kLimit(2);
  const auto limit = Clock::now() + kLimit;
  State state = ReadState();
  auto since = Clock::now();
  while (!state.IsSettled()) {
    const auto now = Clock::now();
    // A thread may have died between the semaphore and its mark. A server that stands still looks the same,
    // so it gets longer.
    const bool is_behind = state.IsBehindBy(mark) && now > since + kStable;
    if (is_behind || (state.IsBehindBy(std::uint64_t{mark} + 1) && now > since + kStableUnmarked)) {
      for (std::uint32_t i = state.full; i < state.entries; ++i) Post(&Record()->full);
      for (std::uint32_t i = state.empty; i < state.room; ++i) Post(&Record()->empty);
      return state.entries - state.full;
    }
    if (now > limit) throw Abandoned("a queue is damaged");
    std::this_thread::sleep_for(kPause);
    const State next = ReadState();
    if (std::tie(next.entries, next.full, next.empty) != std::tie(state.entries, state.full, state.empty)) {
      since = now;
    }
    state = next;
  }
  return 0;
}

bool Queue::WasLeftWith(std::int64_t value) const {
  if (!IsAbandoned(Record()->mutex)) return false;
  return LastPushed() == value;
}

std::int64_t Queue::Before(std::uint32_t position) const {
  return *slots_.As<std::int64_t>((position % size_ + size_ - 1) % size_ * sizeof(std::int64_t));
}

std::int64_t Queue::LastPushed() const { return Before(Record()->head); }

std::int64_t Queue::LastTaken() const { return Before(Record()->tail); }

bool Queue::MayHaveTakenLast(std::int64_t value) const {
  int room = 0;
  sem_getvalue(&Record()->empty, &room);
  return room == 0 || LastTaken() == value;
}

std::int64_t Queue::Next() const { return Before(Record()->tail + 1); }

}  // namespace envpack::shm
