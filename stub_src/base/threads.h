// Threads of the stub.
#pragma once

#include <pthread.h>

#include <system_error>
#include <thread>
#include <utility>

#include "base/descriptor.h"

namespace envpack {

// `name` appears in lists of threads. Throws std::system_error.
template <typename Action>
std::thread StartThread(const char* name, Action action) {
  try {
    std::thread thread(std::move(action));
    pthread_setname_np(thread.native_handle(), name);
    return thread;
  } catch (const std::system_error& error) {
    FailBySystem("a thread cannot be created", error.code().value());
  }
}

}  // namespace envpack
