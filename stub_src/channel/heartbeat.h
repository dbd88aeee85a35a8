// The thread that tells the server every 300 ms that this process lives, and notices when the server does
// not.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>

#include "abi/wire.h"

namespace envpack::channel {

// Runs from construction to destruction. Needs neither the GIL nor any lock of other parts, so a model that
// computes for hours is never taken for dead. When the server dies, removes the region and ends the process
// with status 1.
class Heartbeat {
 public:
  Heartbeat(abi::Attendance& server, std::int64_t server_pid);
  ~Heartbeat();
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;

 private:
  void Run();

  abi::Attendance& server_;
  const std::int64_t server_pid_;
  std::mutex mutex_;
  std::condition_variable stopping_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace envpack::channel
