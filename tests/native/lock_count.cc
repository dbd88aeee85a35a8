#include "lock_count.h"

#include <pthread.h>

namespace {

thread_local int locks = 0;

}  // namespace

extern "C" {

int __real_pthread_mutex_lock(pthread_mutex_t* mutex);

int __wrap_pthread_mutex_lock(pthread_mutex_t* mutex) {
  ++locks;
  return __real_pthread_mutex_lock(mutex);
}
}

namespace envpack::test {

int LocksOfThisThread() { return locks; }

}  // namespace envpack::test
