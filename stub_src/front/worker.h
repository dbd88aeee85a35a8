// The process that runs the model.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <optional>

namespace envpack::front {

// The constructor starts the process, which runs `work` and ends with its result. At that time no other
// thread may run, since the process inherits the locks that it has. The constructing thread must live as long
// as this process: the kernel kills the worker when that thread ends.
class Worker {
 public:
  // Throws std::system_error if the process cannot be created.
  explicit Worker(const std::function<int()>& work);
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  pid_t pid() const { return pid_; }

  // Waits for the end. Returns the status of waitpid(), or nothing if the limit has passed.
  std::optional<int> WaitFor(std::chrono::milliseconds limit);
  int Wait();

 private:
  std::optional<int> Reap(int options);

  pid_t pid_;
};

// Ends this process as the worker ended: with the same status, or by the same signal.
[[noreturn]] void EndAs(int status);

// Passes signals that people send to the stub's process id on to the worker. SIGINT and SIGTERM are not
// passed on: they come from a terminal or a container, to all processes.
void PassSignalsTo(pid_t worker);

}  // namespace envpack::front
