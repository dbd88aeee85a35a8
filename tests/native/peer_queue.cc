#include "peer_queue.h"

#include <pthread.h>
#include <semaphore.h>

#include <cerrno>
#include <string>
#include <utility>

#include "check.h"

namespace envpack::test {

struct PeerQueue::Record {
  sem_t empty;
  sem_t full;
  pthread_mutex_t mutex;
  std::uint64_t size;
  Handle slots;
  std::uint32_t head;
  std::uint32_t tail;
};

PeerQueue::PeerQueue(PeerRegion& region, std::uint64_t slots)
    : region_(&region),
      record_(region.Create(sizeof(Record))),
      slots_(region.Create(slots * sizeof(std::int64_t))) {
  static_assert(sizeof(Record) == 88 + sizeof(pthread_mutex_t));  // 128 on x86-64
  Record* made = record();
  sem_init(&made->empty, 1, static_cast<unsigned>(slots));
  sem_init(&made->full, 1, 0);
  InitShared(&made->mutex);
  made->size = slots;
  made->slots = slots_;
  made->head = made->tail = 0;
}

PeerQueue::Record* PeerQueue::record() { return region_->As<Record>(record_); }

void PeerQueue::Push(std::int64_t value) {
  Record* queue = record();
  const timespec limit = In(TimeoutSeconds() * 1000);
  if (sem_timedwait(&queue->empty, &limit) != 0) throw Failed("the queue stays full");
  pthread_mutex_lock(&queue->mutex);
  region_->As<std::int64_t>(slots_)[queue->head] = value;
  queue->head = static_cast<std::uint32_t>((queue->head + 1) % queue->size);
  pthread_mutex_unlock(&queue->mutex);
  sem_post(&queue->full);
}

std::optional<std::int64_t> PeerQueue::TryPop(int milliseconds) {
  if (put_back_) return std::exchange(put_back_, std::nullopt);
  Record* queue = record();
  const timespec limit = In(milliseconds);
  while (sem_timedwait(&queue->full, &limit) != 0) {
    if (errno != EINTR) return std::nullopt;
  }
  pthread_mutex_lock(&queue->mutex);
  const std::int64_t value = region_->As<std::int64_t>(slots_)[queue->tail];
  queue->tail = static_cast<std::uint32_t>((queue->tail + 1) % queue->size);
  pthread_mutex_unlock(&queue->mutex);
  sem_post(&queue->empty);
  return value;
}

std::int64_t PeerQueue::Pop(int seconds) {
  const auto value = TryPop(seconds * 1000);
  if (!value) throw Failed("no message within " + std::to_string(seconds) + " s");
  return *value;
}

}  // namespace envpack::test
