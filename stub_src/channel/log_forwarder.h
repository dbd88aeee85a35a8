// Writes log lines to the server's log without blocking Python.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>
#include <thread>

#include "abi/wire.h"
#include "base/forks.h"

namespace envpack::channel {

// Writes a line to standard error, in the server's format: while the server does not read the log queue.
void LogToStderr(const abi::LogLine& line);

// Passes lines on to the server, in order, through a separate thread. The server takes about ten thousand
// lines in a second, and none while it loads a model for this one. A model that logs faster waits: no line is
// lost, and the memory of the lines and the time that the last ones take have a limit. Where writing does not
// wait, a line is written by who logs it, so that it comes before the answer that follows it.
class LogForwarder {
 public:
  explicit LogForwarder(abi::Wire& wire);
  ~LogForwarder();

  // Any thread. May wait for room, so do not call it with the GIL held.
  void Write(abi::LogLine line);

  // Writes the line unless that would have to wait; then returns false and leaves the line as it is.
  bool TryWrite(abi::LogLine& line);

  // Sends the remaining lines and ends the thread. Later lines go to standard error.
  void Stop();

 private:
  void Run();
  void Send(const abi::LogLine& line);
  bool HasRoom() const;
  void Add(abi::LogLine line);

  abi::Wire& wire_;
  const forks::OwnerProcess owner_process_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::condition_variable has_room_;
  std::deque<abi::LogLine> lines_;
  std::size_t bytes_ = 0;  // of the messages of these lines
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace envpack::channel
