// Locks, conditions and semaphores that live in shared memory: plain glibc objects, shared between processes.
// Whoever creates a record initialises them; nobody destroys them, the memory just goes away.
#pragma once

#include <pthread.h>
#include <semaphore.h>

#include <chrono>

namespace envpack::shm {

void InitMutex(pthread_mutex_t* mutex);
void InitCondition(pthread_cond_t* condition);

// Holds a shared mutex for a scope. Throws std::system_error if it cannot be locked.
class Lock {
 public:
  explicit Lock(pthread_mutex_t* mutex);
  ~Lock();
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

  // Waits on `condition`, giving the mutex up meanwhile. Wakes up for no reason too: call it in a loop.
  void Wait(pthread_cond_t* condition);
  // The same, but not beyond `limit`. False if that has come.
  bool WaitUntil(pthread_cond_t* condition, std::chrono::system_clock::time_point limit);

 private:
  pthread_mutex_t* mutex_;
};

void Notify(pthread_cond_t* condition);

// Waits for a semaphore; a signal handler that runs meanwhile does not end the wait.
void WaitFor(sem_t* semaphore);
void Post(sem_t* semaphore);

}  // namespace envpack::shm
