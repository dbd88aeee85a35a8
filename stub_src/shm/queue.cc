#include "shm/queue.h"

#include <pthread.h>
#include <semaphore.h>

#include <cstddef>

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
  if (record->size == 0) throw CorruptRegion("a message queue has no slots");
  slots_.At(0, record->size * sizeof(std::int64_t));
}

void Queue::Push(std::int64_t value) {
  auto* record = record_.As<Record>();
  WaitFor(&record->empty);
  {
    const Lock lock(&record->mutex);
    *slots_.As<std::int64_t>(record->head % record->size * sizeof(value)) = value;
    record->head = static_cast<std::uint32_t>((record->head + 1) % record->size);
  }
  Post(&record->full);
}

std::int64_t Queue::Pop() {
  auto* record = record_.As<Record>();
  WaitFor(&record->full);
  std::int64_t value;
  {
    const Lock lock(&record->mutex);
    value = *slots_.As<std::int64_t>(record->tail % record->size * sizeof(value));
    record->tail = static_cast<std::uint32_t>((record->tail + 1) % record->size);
  }
  Post(&record->empty);
  return value;
}

}  // namespace envpack::shm
