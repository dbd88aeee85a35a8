// The thread that reports every 300 ms that this process is alive, and detects the death of the server.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>

#include "abi/base_session.h"

namespace envpack::channel {

// Runs from construction to destruction, without the GIL or locks of other components: a model that computes
// for hours counts as alive. When the server dies, removes the region's name and exits with status 1.
class Heartbeat {
 public:
  Heartbeat(abi::FrontSession& server, std::int64_t server_pid);
  ~Heartbeat();

  // Runs `action`, which forks, while the thread does not exist. So the child inherits no lock that the
  // thread has: neither one of the record, nor one within the C++ library. Throws std::system_error if the
  // thread cannot be created again.
  template <typename Action>
  void StopWhile(Action action) {
    Stop();
    try {
      action();
    } catch (...) {
      Start();
      throw;
    }
    Start();
  }

 private:
  void Start();
  void Stop();
  void Run();

  abi::FrontSession& server_;
  const std::int64_t server_pid_;
  std::mutex mutex_;
  std::condition_variable stopping_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace envpack::channel
