#include "lock_count.h"

#include <pthread.h>

#include <cstdint>

namespace {

thread_local int locks = 0;

}  // namespace

// BriefLock(pthread_mutex_t*, std::chrono::milliseconds), as compilers name it.
#define CONSTRUCTOR(prefix) \
  prefix##_ZN7envpack3shm9BriefLockC1EP15pthread_mutex_tNSt6chrono8durationIlSt5ratioILl1ELl1000EEEE

extern "C" {

void CONSTRUCTOR(__real_)(void* lock, pthread_mutex_t* mutex, std::int64_t limit);

void CONSTRUCTOR(__wrap_)(void* lock, pthread_mutex_t* mutex, std::int64_t limit) {
  ++locks;
  CONSTRUCTOR(__real_)(lock, mutex, limit);
}
}

namespace envpack::test {

int LocksOfThisThread() { return locks; }

}  // namespace envpack::test
