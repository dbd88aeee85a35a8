// Waiting on a condition in shared memory.
#include <chrono>

#include "check.h"
#include "shm/sync.h"

namespace envpack::shm {
namespace {

using std::chrono::system_clock;

CASE(a_wait_does_not_end_before_its_limit) {
  pthread_mutex_t mutex;
  pthread_cond_t condition;
  InitMutex(&mutex);
  InitCondition(&condition);
  Lock lock(&mutex);
  const auto limit = system_clock::now() + std::chrono::milliseconds(50);
  while (lock.WaitUntil(&condition, limit)) {  // a spurious wake-up
  }
  CHECK(system_clock::now() >= limit);
}

}  // namespace
}  // namespace envpack::shm
