#include "shm/queue.h"

#include <pthread.h>
#include <semaphore.h>

#include <cstddef>
#include <string>

#include "shm/sync.h"

namespace envpack::shm {

struct Queue::Record {
  sem_t empty;
  sem_t full;
  pthread_mutex_t mutex;
  std::uint64_t size;
  Handle slots;
  std::uint32_t head;
  std::uint32_t tail;

  static constexpr bool LayoutHolds() {
    return sizeof(Record) == 128 && offsetof(Record, full) == 32 && offsetof(Record, mutex) == 64 &&
           offsetof(Record, size) == 104 && offsetof(Record, slots) == 112 && offsetof(Record, head) == 120 &&
           offsetof(Record, tail) == 124;
  }
};

Queue::Queue(Region& region, Handle handle) : record_(region.Load(handle)) {
  static_assert(Record::LayoutHolds(), "the queue record is the same in every release");
  const auto* record = record_.As<Record>();
  slots_ = region.Load(record->slots);
  size_ = record->size;
  if (size_ == 0 || size_ > region.Size() / sizeof(std::int64_t)) {
    throw CorruptRegion("a message queue claims " + std::to_string(size_) + " slots");
  }
  slots_.At(0, size_ * sizeof(std::int64_t));
}

void Queue::Push(std::int64_t value) {
  auto* record = record_.As<Record>();
  WaitFor(&record->empty);
  {
    const Lock lock(&record->mutex);
    *slots_.As<std::int64_t>(record->head % size_ * sizeof(value)) = value;
    record->head = static_cast<std::uint32_t>((record->head + 1) % size_);
  }
  Post(&record->full);
}

std::int64_t Queue::Pop() {
  auto* record = record_.As<Record>();
  WaitFor(&record->full);
  std::int64_t value;
  {
    const Lock lock(&record->mutex);
    value = *slots_.As<std::int64_t>(record->tail % size_ * sizeof(value));
    record->tail = static_cast<std::uint32_t>((record->tail + 1) % size_);
  }
  Post(&record->empty);
  return value;
}

}  // namespace envpack::shm
