// A queue as it lies in the region, in every release.
#pragma once

#include <pthread.h>
#include <semaphore.h>

#include <cstdint>

#include "shm/region.h"

namespace envpack::shm {

struct QueueRecord {
  sem_t empty;
  sem_t full;
  pthread_mutex_t mutex;
  std::uint64_t size;
  Handle slots;
  std::uint32_t head;
  std::uint32_t tail;
};

}  // namespace envpack::shm
