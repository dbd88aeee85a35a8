// Carries log lines to the server's log without making Python wait for the server.
#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "abi/wire.h"
#include "forks.h"

namespace envpack::channel {

// Where log lines go. Callable from any thread, with or without the GIL.
class LogSink {
 public:
  virtual ~LogSink() = default;
  virtual void Write(abi::LogLine line) = 0;
};

// To standard error, in the server's own style. For the time before the server reads our log queue.
class StderrLog final : public LogSink {
 public:
  void Write(abi::LogLine line) override;
};

// To the server, in order, by a thread of its own. The destructor sends what is left.
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
  const forks::Maker maker_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<abi::LogLine> lines_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace envpack::channel
