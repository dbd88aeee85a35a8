// Mutexes, conditions and semaphores in shared memory: plain glibc objects with the process-shared attribute.
// The creator of a record initialises them. They are never destroyed; their memory is freed with the record.
#pragma once

#include <pthread.h>
#include <semaphore.h>

#include <chrono>

namespace envpack::shm {

void InitMutex(pthread_mutex_t* mutex);
void InitCondition(pthread_cond_t* condition);

// Throws std::system_error unless `mutex` is of a kind that server or stub initialise. glibc ends the process
// for others, or waits for ever.
void CheckKind(const pthread_mutex_t& mutex);

// Whether a thread that no longer exists has locked `mutex`.
bool IsAbandoned(const pthread_mutex_t& mutex);

// Locks a shared mutex for a scope that waits for nothing. Throws std::system_error if it cannot be locked;
// its code is ETIMEDOUT if the limit has passed.
//
// The process may be killed in that scope. Of a robust mutex, as the server's are, glibc lets the kernel note
// who holds it, and the server aborts if it is the first to lock it then. So this thread leaves that note
// out: the server waits until a BriefLock takes the mutex over.
class BriefLock {
 public:
  explicit BriefLock(pthread_mutex_t* mutex, std::chrono::milliseconds limit = kUnlimited);
  ~BriefLock();
  BriefLock(BriefLock&&) = delete;

  // Whether a process has died while it held the mutex. What the mutex guards may be half-written.
  bool owner_died() const { return owner_died_; }

 private:
  static constexpr std::chrono::hours kUnlimited{24 * 365};

  void Take(std::chrono::milliseconds limit);
  void TakeUnnoted(std::chrono::milliseconds limit);

  pthread_mutex_t* mutex_;
  bool is_unnoted_;
  bool owner_died_ = false;
};

// Locks a shared mutex for a scope that may wait on a condition. Throws std::system_error if that fails.
class Lock {
 public:
  explicit Lock(pthread_mutex_t* mutex);
  ~Lock();
  Lock(Lock&&) = delete;

  // Waits on `condition` and releases the mutex meanwhile. Spurious wake-ups occur: call it in a loop.
  void Wait(pthread_cond_t* condition);
  // The same with a deadline. Returns false when `limit` has passed.
  bool WaitUntil(pthread_cond_t* condition, std::chrono::system_clock::time_point limit);

 private:
  pthread_mutex_t* mutex_;
};

void Notify(pthread_cond_t* condition);

// Waits for a semaphore. A signal handler does not interrupt the wait.
void WaitFor(sem_t* semaphore);
// The same with a limit. Returns false when it has passed.
bool WaitFor(sem_t* semaphore, std::chrono::milliseconds limit);
void Post(sem_t* semaphore);

}  // namespace envpack::shm
