// A bounded queue of 64-bit values between the two processes, and its record in the region.
#pragma once

#include <pthread.h>
#include <semaphore.h>

#include <cstdint>

#include "shm/region.h"

namespace envpack::shm {

// The layout is the same in every release.
struct QueueRecord {
  sem_t empty;
  sem_t full;
  pthread_mutex_t mutex;
  std::uint64_t size;
  Handle slots;
  std::uint32_t head;
  std::uint32_t tail;
};

// Queues carry handles. The value 0 is never a handle: it acknowledges, wakes up or ends, depending on the
// exchange.
class Queue {
 public:
  // Attaches to a queue that the server has created.
  Queue(Region& region, Handle handle);

  // Push() blocks while the queue is full, Pop() while it is empty. Never call them with the GIL held.
  void Push(std::int64_t value);
  std::int64_t Pop();

 private:
  Block record_;
  Block slots_;
  std::uint64_t size_;  // as first read; the copy in the region might change
};

}  // namespace envpack::shm
