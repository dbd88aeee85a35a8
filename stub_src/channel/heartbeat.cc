#include "channel/heartbeat.h"

#include <pthread.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>

namespace envpack::channel {

namespace {

// The server resets the flag and expects it to be set within one second.
constexpr std::chrono::milliseconds kInterval(300);

}  // namespace

Heartbeat::Heartbeat(abi::Session& server, std::int64_t server_pid)
    : server_(server), server_pid_(server_pid), thread_([this] { Run(); }) {
  pthread_setname_np(thread_.native_handle(), "pbstub-health");
}

Heartbeat::~Heartbeat() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  stopping_.notify_all();
  thread_.join();
}

// Whoever has the mutex knows that the thread does not run, unless it has not come to its first sleep yet.
std::unique_lock<std::mutex> Heartbeat::Pause() {
  std::unique_lock lock(mutex_);
  asleep_.wait(lock, [this] { return has_slept_; });
  return lock;
}

void Heartbeat::Run() {
  std::unique_lock lock(mutex_);
  while (!stop_) {
    // The server is the parent process. Its pid would also exist for a zombie.
    if (getppid() != server_pid_) {
      std::fputs("envpack stub: the server has died; exiting without finalize\n", stderr);
      server_.UnlinkRegion();
      _exit(1);
    }
    server_.Beat();
    if (!has_slept_) {
      has_slept_ = true;
      asleep_.notify_all();
    }
    stopping_.wait_for(lock, kInterval, [this] { return stop_; });
  }
}

}  // namespace envpack::channel
