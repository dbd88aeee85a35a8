#include "lock_count.h"

#include <pthread.h>

#include <cstdint>

namespace {

thread_local int locks = 0;

}  // namespace

// The names of the constructor of BriefLock by which the linker wraps it; CMake defines them.
extern "C" {

void REAL_BRIEF_LOCK(void* lock, pthread_mutex_t* mutex, std::int64_t limit);

void WRAPPED_BRIEF_LOCK(void* lock, pthread_mutex_t* mutex, std::int64_t limit) {
  ++locks;
  REAL_BRIEF_LOCK(lock, mutex, limit);
}
}

namespace envpack::test {

int LocksOfThisThread() { return locks; }

}  // namespace envpack::test
