#include "shm/sync.h"

#include <cerrno>
#include <system_error>

namespace envpack::shm {

namespace {

void Check(int code, const char* what) {
  if (code != 0) throw std::system_error(code, std::generic_category(), what);
}

}  // namespace

void InitMutex(pthread_mutex_t* mutex) {
  pthread_mutexattr_t attributes;
  Check(pthread_mutexattr_init(&attributes), "mutex attributes");
  pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  const int code = pthread_mutex_init(mutex, &attributes);
  pthread_mutexattr_destroy(&attributes);
  Check(code, "mutex");
}

void InitCondition(pthread_cond_t* condition) {
  pthread_condattr_t attributes;
  Check(pthread_condattr_init(&attributes), "condition attributes");
  pthread_condattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  const int code = pthread_cond_init(condition, &attributes);
  pthread_condattr_destroy(&attributes);
  Check(code, "condition");
}

Lock::Lock(pthread_mutex_t* mutex) : mutex_(mutex) {
  const int code = pthread_mutex_lock(mutex);
  // The peer died while it held a robust mutex: we own it now, and what it guards is consistent enough to go
  // on.
  if (code == EOWNERDEAD) {
    pthread_mutex_consistent(mutex);
    return;
  }
  Check(code, "lock of a shared mutex");
}

Lock::~Lock() { pthread_mutex_unlock(mutex_); }

void Lock::Wait(pthread_cond_t* condition) {
  Check(pthread_cond_wait(condition, mutex_), "shared condition");
}

void Notify(pthread_cond_t* condition) { pthread_cond_broadcast(condition); }

void WaitFor(sem_t* semaphore) {
  while (sem_wait(semaphore) != 0) {
    if (errno != EINTR) throw std::system_error(errno, std::generic_category(), "shared semaphore");
  }
}

void Post(sem_t* semaphore) {
  if (sem_post(semaphore) != 0) throw std::system_error(errno, std::generic_category(), "shared semaphore");
}

}  // namespace envpack::shm
