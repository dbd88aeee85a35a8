#include "shm/sync.h"

#include <cerrno>

#include "base/descriptor.h"

namespace envpack::shm {

namespace {

void Check(int code, const char* what) {
  if (code != 0) FailBySystem(what, code);
}

// The result of a function that has locked `mutex`. If a process died while it held a robust mutex, this one
// owns it now, and without this call nobody could lock it again. What the mutex guards may be half-written;
// what is read from the region is checked in any case.
int Own(pthread_mutex_t* mutex, int code) {
  return code == EOWNERDEAD ? pthread_mutex_consistent(mutex) : code;
}

timespec ToTimespec(std::chrono::system_clock::time_point time) {
  const auto since = time.time_since_epoch();
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(since);
  timespec result{};
  result.tv_sec = seconds.count();
  result.tv_nsec = std::chrono::duration_cast<std::chrono::nanoseconds>(since - seconds).count();
  return result;
}

constexpr int kShared = 0x80, kRobust = 0x10;  // of a mutex
constexpr int kIgnored = 0x300;                // whether hardware transactions are tried

}  // namespace

void CheckKind(const pthread_mutex_t& mutex) {
  const int kind = mutex.__data.__kind & ~kIgnored;
  if (kind != kShared && kind != (kShared | kRobust)) FailBySystem("a shared mutex is damaged", EINVAL);
}

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
  CheckKind(*mutex);
  const int code = pthread_mutex_lock(mutex);
  owner_died_ = code == EOWNERDEAD;
  Check(Own(mutex, code), "lock of a shared mutex");
}

Lock::Lock(pthread_mutex_t* mutex, std::chrono::milliseconds limit) : mutex_(mutex) {
  CheckKind(*mutex);
  const timespec until = ToTimespec(std::chrono::system_clock::now() + limit);
  const int code = pthread_mutex_timedlock(mutex, &until);
  owner_died_ = code == EOWNERDEAD;
  Check(Own(mutex, code), "lock of a shared mutex");
}

Lock::~Lock() { pthread_mutex_unlock(mutex_); }

void Lock::Wait(pthread_cond_t* condition) {
  Check(Own(mutex_, pthread_cond_wait(condition, mutex_)), "shared condition");
}

bool Lock::WaitUntil(pthread_cond_t* condition, std::chrono::system_clock::time_point limit) {
  const timespec until = ToTimespec(limit);
  const int code = Own(mutex_, pthread_cond_timedwait(condition, mutex_, &until));
  if (code == ETIMEDOUT) return false;
  Check(code, "shared condition");
  return true;
}

void Notify(pthread_cond_t* condition) { pthread_cond_broadcast(condition); }

void WaitFor(sem_t* semaphore) {
  while (sem_wait(semaphore) != 0) {
    if (errno != EINTR) FailBySystem("shared semaphore");
  }
}

bool WaitFor(sem_t* semaphore, std::chrono::milliseconds limit) {
  const timespec until = ToTimespec(std::chrono::system_clock::now() + limit);
  while (sem_timedwait(semaphore, &until) != 0) {
    if (errno == ETIMEDOUT) return false;
    if (errno != EINTR) FailBySystem("shared semaphore");
  }
  return true;
}

void Post(sem_t* semaphore) {
  if (sem_post(semaphore) != 0) FailBySystem("shared semaphore");
}

}  // namespace envpack::shm
