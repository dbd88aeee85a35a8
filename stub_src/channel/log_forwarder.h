// Writes log lines to the server's log without blocking Python.
#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "abi/wire.h"
#include "forks.h"

namespace envpack::channel {

// Destination of log lines. Callable from any thread, with or without the GIL.
class LogSink {
 public:
  virtual ~LogSink() = default;
  virtual void Write(abi::LogLine line) = 0;
};

// Standard error, in the server's format. Used until the server reads the log queue.
class StderrLog final : public LogSink {
 public:
  void Write(abi::LogLine line) override;
};

// The server, in order, through a separate thread. The destructor sends the remaining lines.
class LogForwarder final : public LogSink {
 public:
  explicit LogForwarder(abi::Wire& wire);
  ~LogForwarder() override;
  LogForwarder(const LogForwarder&) = delete;
  LogForwarder& operator=(const LogForwarder&) = delete;

  void Write(abi::LogLine line) override;

 private:
  void Run();

  abi::Wire& wire_;
  const forks::OwnerProcess owner_process_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<abi::LogLine> lines_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace envpack::channel
