#include "shm/sync.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>

#include "base/descriptor.h"
#include "base/forks.h"

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

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kSlice(10);  // after which the owner of a mutex is looked for

bool Exists(int thread) { return syscall(SYS_tkill, thread, 0) == 0 || errno != ESRCH; }

thread_local std::uint32_t this_thread = 0;
const int forgotten_in_child = pthread_atfork(nullptr, nullptr, [] { this_thread = 0; });

std::uint32_t ThisThread() {
  if (this_thread == 0) this_thread = static_cast<std::uint32_t>(syscall(SYS_gettid));
  return this_thread;
}

std::atomic<std::uint32_t>& Word(pthread_mutex_t* mutex) {
  return reinterpret_cast<std::atomic<std::uint32_t>&>(mutex->__data.__lock);
}

void Futex(pthread_mutex_t* mutex, int operation, std::uint32_t value, const timespec* time) {
  syscall(SYS_futex, &mutex->__data.__lock, operation, value, time, nullptr, 0);
}

constexpr int kShared = 0x80, kRobust = 0x10;  // of a mutex
constexpr int kIgnored = 0x300;                // whether hardware transactions are tried

}  // namespace

void CheckKind(const pthread_mutex_t& mutex) {
  const int kind = mutex.__data.__kind & ~kIgnored;
  if (kind != kShared && kind != (kShared | kRobust)) FailBySystem("a shared mutex is damaged", EINVAL);
}

bool IsAbandoned(const pthread_mutex_t& mutex) {
  const int owner = *const_cast<const volatile int*>(&mutex.__data.__owner);
  return owner != 0 && !Exists(owner);
}

// No process takes over from those that the model forks, so they lock as glibc does.
BriefLock::BriefLock(pthread_mutex_t* mutex, std::chrono::milliseconds limit) : mutex_(mutex) {
  CheckKind(*mutex);
  is_unnoted_ = (mutex->__data.__kind & kRobust) != 0 && forks::Depth() == 0;
  is_unnoted_ ? TakeUnnoted(limit) : Take(limit);
}

BriefLock::~BriefLock() {
  if (!is_unnoted_) {
    pthread_mutex_unlock(mutex_);
    return;
  }
  mutex_->__data.__owner = 0;
  --mutex_->__data.__nusers;
  if ((Word(mutex_).exchange(0) & FUTEX_WAITERS) != 0) Futex(mutex_, FUTEX_WAKE, 1, nullptr);
}

void BriefLock::Take(std::chrono::milliseconds limit) {
  int code = pthread_mutex_trylock(mutex_);
  const auto until = Clock::now() + limit;
  while (code == EBUSY || code == ETIMEDOUT) {
    if (Clock::now() > until) FailBySystem("lock of a shared mutex", ETIMEDOUT);
    // Robust mutexes check who unlocks them, but the kernel has marked those.
    if (IsAbandoned(*mutex_) && pthread_mutex_unlock(mutex_) == 0) owner_died_ = true;
    const timespec slice = ToTimespec(std::chrono::system_clock::now() + kSlice);
    code = pthread_mutex_timedlock(mutex_, &slice);
  }
  owner_died_ |= code == EOWNERDEAD;
  Check(Own(mutex_, code), "lock of a shared mutex");
}

// The word of a robust mutex has the thread that holds it and two bits, as glibc and the kernel use them.
void BriefLock::TakeUnnoted(std::chrono::milliseconds limit) {
  std::atomic<std::uint32_t>& word = Word(mutex_);
  const std::uint32_t self = ThisThread();
  auto until = Clock::time_point::max();
  std::uint32_t seen = 0, waiters = 0;
  while (!word.compare_exchange_strong(seen, self | waiters)) {
    const auto owner = static_cast<int>(seen & FUTEX_TID_MASK);
    if (owner == 0 ? (seen & FUTEX_OWNER_DIED) != 0 : !Exists(owner)) {
      owner_died_ = word.compare_exchange_strong(seen, self | FUTEX_WAITERS);
      if (owner_died_) break;
    } else if ((seen & FUTEX_WAITERS) != 0 || word.compare_exchange_strong(seen, seen | FUTEX_WAITERS)) {
      if (waiters == 0) until = Clock::now() + limit;
      if (Clock::now() > until) FailBySystem("lock of a shared mutex", ETIMEDOUT);
      waiters = FUTEX_WAITERS;
      const timespec slice{0, std::chrono::nanoseconds(kSlice).count()};
      Futex(mutex_, FUTEX_WAIT, seen | FUTEX_WAITERS, &slice);
    }
    seen = 0;
  }
  mutex_->__data.__owner = static_cast<int>(self);
  if (!owner_died_) ++mutex_->__data.__nusers;  // else that of the dead
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
  Check(Own(mutex, pthread_mutex_lock(mutex)), "lock of a shared mutex");
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
