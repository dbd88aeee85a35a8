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

// Locks a shared mutex for a scope. Throws std::system_error if it cannot be locked.
class Lock {
 public:
  explicit Lock(pthread_mutex_t* mutex);
  // The same with a limit; the code of the error is then ETIMEDOUT.
  Lock(pthread_mutex_t* mutex, std::chrono::milliseconds limit);
  ~Lock();
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

  // Whether a process has died while it held the mutex, which is robust, as the server's are. What the mutex
  // guards may be half-written.
  bool owner_died() const { return owner_died_; }

  // Waits on `condition` and releases the mutex meanwhile. Spurious wake-ups occur: call it in a loop.
  void Wait(pthread_cond_t* condition);
  // The same with a deadline. Returns false when `limit` has passed.
  bool WaitUntil(pthread_cond_t* condition, std::chrono::system_clock::time_point limit);

 private:
  pthread_mutex_t* mutex_;
  bool owner_died_;
};

void Notify(pthread_cond_t* condition);

// Waits for a semaphore. A signal handler does not interrupt the wait.
void WaitFor(sem_t* semaphore);
// The same with a limit. Returns false when it has passed.
bool WaitFor(sem_t* semaphore, std::chrono::milliseconds limit);
void Post(sem_t* semaphore);

}  // namespace envpack::shm
