#include "shm/queue.h"

#include <string>

#include "shm/sync.h"

namespace envpack::shm {

Queue::Queue(Region& region, Handle handle) : record_(region.Load(handle)) {
  const auto* record = record_.As<QueueRecord>();
  slots_ = region.Load(record->slots);
  size_ = record->size;
  if (size_ == 0 || size_ > region.Size() / sizeof(std::int64_t)) {
    throw CorruptRegion("a message queue claims " + std::to_string(size_) + " slots");
  }
  slots_.At(0, size_ * sizeof(std::int64_t));
}

void Queue::Push(std::int64_t value) {
  auto* record = record_.As<QueueRecord>();
  WaitFor(&record->empty);
  {
    const Lock lock(&record->mutex);
    *slots_.As<std::int64_t>(record->head % size_ * sizeof(value)) = value;
    record->head = static_cast<std::uint32_t>((record->head + 1) % size_);
  }
  Post(&record->full);
}

std::int64_t Queue::Pop() {
  auto* record = record_.As<QueueRecord>();
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
