// What a process that has died leaves in shared memory: mutexes that its threads had locked, and conditions
// that they waited on. For its parent, after it has been reaped.
#pragma once

#include <pthread.h>

#include <cstdint>
#include <optional>
#include <stdexcept>

#include "shm/sync.h"

namespace envpack::shm {

// What was left cannot be put right.
struct Abandoned : std::runtime_error {
  using runtime_error::runtime_error;
};

// Locks a mutex for a scope, also one that is abandoned: for mutexes that guard single values. `what` names
// it in the error. Throws Abandoned if it stays locked for a second.
class LockAnyway {
 public:
  LockAnyway(pthread_mutex_t* mutex, const char* what);

 private:
  std::optional<BriefLock> lock_;
};

// Wakes all waiters of `condition`, which cannot be used afterwards. glibc counts a process that died while
// it waited as a waiter, and its own functions may wait for that process. A waiter that has just begun to
// wait may miss the call, so repeat it. The waiters' predicate must be true.
void EndWaits(pthread_cond_t* condition);

// How many waits on `condition` have begun, of whichever process.
std::uint64_t WaitsBegun(const pthread_cond_t& condition);

}  // namespace envpack::shm
