#include "channel/heartbeat.h"

#include <pthread.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>

namespace envpack::channel {

namespace {

// The server gives a stub one second; it resets the flag before it starts to wait.
constexpr std::chrono::milliseconds kInterval(300);

}  // namespace

Heartbeat::Heartbeat(abi::Attendance& server, std::int64_t server_pid)
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

void Heartbeat::Run() {
  std::unique_lock lock(mutex_);
  while (!stop_) {
    // The server is our parent. Asking whether its pid exists would also be true of a zombie that nobody has
    // reaped.
    if (getppid() != server_pid_) {
      std::fputs("envpack stub: the server has gone; ending without finalize\n", stderr);
      server_.Abandon();
      _exit(1);
    }
    server_.Beat();
    stopping_.wait_for(lock, kInterval, [this] { return stop_; });
  }
}

}  // namespace envpack::channel
