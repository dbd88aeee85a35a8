#include "shm/queue.h"

#include <string>

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
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;

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
    const Lock lock(&record->mutex);
    *slots_.As<std::int64_t>(record->head % size_ * sizeof(value)) = value;
    record->head = static_cast<std::uint32_t>((record->head + 1) % size_);
    if (pushed != nullptr) *pushed = 1;
  }
  Post(&record->full);
}

std::int64_t Queue::Pop(std::atomic<std::int64_t>* taken) {
  auto* record = record_.As<QueueRecord>();
  WaitFor(&record->full);
  const Inside inside(mark_);
  std::int64_t value;
  {
    const Lock lock(&record->mutex);
    value = *slots_.As<std::int64_t>(record->tail % size_ * sizeof(value));
    if (taken != nullptr) *taken = value;
    record->tail = static_cast<std::uint32_t>((record->tail + 1) % size_);
  }
  Post(&record->empty);
  return value;
}

bool Queue::HasValueWithin(std::chrono::milliseconds limit) {
  auto* record = record_.As<QueueRecord>();
  if (!WaitFor(&record->full, limit)) return false;
  Post(&record->full);
  return true;
}

QueueState Queue::State(const QueueMark& mark) {
  auto* record = record_.As<QueueRecord>();
  const LockAnyway lock(&record->mutex, "a queue");
  const auto size = static_cast<std::uint32_t>(size_);
  const std::uint32_t head = record->head % size, tail = record->tail % size;
  int full = 0, empty = 0;
  sem_getvalue(&record->full, &full);
  sem_getvalue(&record->empty, &empty);
  std::uint32_t entries = (head + size - tail) % size;
  if (entries == 0 && empty == 0) entries = size;  // both positions are equal in a full queue, too
  return {entries, static_cast<std::uint32_t>(full), static_cast<std::uint32_t>(empty), size, mark};
}

void Queue::Repair(const QueueState& state) {
  auto* record = record_.As<QueueRecord>();
  for (std::uint32_t i = state.full; i < state.entries; ++i) Post(&record->full);
  for (std::uint32_t i = state.empty; i < state.size - state.entries; ++i) Post(&record->empty);
}

bool Queue::WasLeftWith(std::int64_t value) const {
  if (!IsAbandoned(record_.As<QueueRecord>()->mutex)) return false;
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
