// Lets a peer that waits on a condition go on, on every way out of a scope.
#pragma once

#include <pthread.h>

#include "shm/sync.h"

namespace envpack::abi {

class ReleaseOnExit {
 public:
  explicit ReleaseOnExit(pthread_cond_t* condition) : condition_(condition) {}
  ~ReleaseOnExit() { shm::Notify(condition_); }
  ReleaseOnExit(const ReleaseOnExit&) = delete;
  ReleaseOnExit& operator=(const ReleaseOnExit&) = delete;

 private:
  pthread_cond_t* condition_;
};

}  // namespace envpack::abi
