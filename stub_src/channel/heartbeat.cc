#include "channel/heartbeat.h"

#include <unistd.h>

#include <chrono>

#include "base/output.h"
#include "base/threads.h"

namespace envpack::channel {

namespace {

// The server resets the flag and expects it to be set within one second.
constexpr std::chrono::milliseconds kInterval(300);

}  // namespace

Heartbeat::Heartbeat(abi::FrontSession& server, std::int64_t server_pid)
    : server_(server), server_pid_(server_pid) {
  Start();
}

Heartbeat::~Heartbeat() { Stop(); }

void Heartbeat::Start() {
  stop_ = false;
  thread_ = StartThread("pbstub-health", [this] { Run(); });
}

void Heartbeat::Stop() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  stopping_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Heartbeat::Run() {
  std::unique_lock lock(mutex_);
  while (!stop_) {
    // The server is the parent process. Its pid would also exist for a zombie.
    if (getppid() != server_pid_) {
      Print("the server has died; exiting without finalize");
      server_.UnlinkRegion();
      _exit(1);
    }
    server_.Beat();
    stopping_.wait_for(lock, kInterval, [this] { return stop_; });
  }
}

}  // namespace envpack::channel
