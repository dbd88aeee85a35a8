// Waiting on a condition in shared memory.
#include <atomic>
#include <chrono>
#include <thread>

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

pthread_mutex_t RobustMutex() {
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  pthread_mutex_t mutex;
  pthread_mutex_init(&mutex, &attributes);
  return mutex;
}

CASE(a_robust_mutex_can_be_locked_again_after_its_owner_has_ended) {
  pthread_mutex_t mutex = RobustMutex();
  std::thread([&] { pthread_mutex_lock(&mutex); }).join();
  {
    const Lock lock(&mutex);
  }
  const Lock again(&mutex);
}

CASE(a_wait_ends_although_the_thread_that_ended_it_has_not_unlocked_a_robust_mutex) {
  pthread_mutex_t mutex = RobustMutex();
  pthread_cond_t condition;
  InitCondition(&condition);
  {
    Lock lock(&mutex);
    std::atomic<bool> woken{false};  // the thread sanitizer does not know robust mutexes
    std::thread waker([&] {
      pthread_mutex_lock(&mutex);
      woken = true;
      Notify(&condition);
    });
    while (!woken) lock.Wait(&condition);
    waker.join();
  }
  const Lock again(&mutex);
}

}  // namespace
}  // namespace envpack::shm
