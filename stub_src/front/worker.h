// The process that runs the model.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <optional>

namespace envpack::front {

// In place of a status of waitpid(): the process has ended, but how is not known.
inline constexpr int kUnknownStatus = -1;

class Worker {
 public:
  virtual ~Worker() = default;

  // 0 until it is known.
  virtual pid_t pid() const = 0;

  // Waits until pid() is known, for a limited time: a fork of a template can be ready before the template has
  // said which process it is.
  virtual void AwaitPid() = 0;

  // Waits for the end. Returns the status of waitpid(), or nothing if the limit has passed. Throws
  // std::system_error.
  virtual std::optional<int> WaitFor(std::chrono::milliseconds limit) = 0;
  virtual int Wait() = 0;

  virtual void Signal(int signal) const = 0;

  // Passes signals that people send to the stub's process id on to the worker. SIGINT and SIGTERM are not
  // passed on: they come from a terminal or a container, to all processes.
  virtual void PassSignals() = 0;
};

// A child of this process. The constructor starts it: it runs `work` and ends with its result. At that time
// no other thread may run, since the process inherits the locks that it has. The constructing thread must
// live as long as this process: the kernel kills the worker when that thread ends.
class ForkedWorker final : public Worker {
 public:
  // Throws std::system_error if the process cannot be created.
  explicit ForkedWorker(const std::function<int()>& work);
  // For a child that has been started otherwise, after CollectChildren().
  explicit ForkedWorker(pid_t pid) : pid_(pid) {}
  ForkedWorker(const ForkedWorker&) = delete;
  ForkedWorker& operator=(const ForkedWorker&) = delete;

  pid_t pid() const override { return pid_; }
  void AwaitPid() override {}
  std::optional<int> WaitFor(std::chrono::milliseconds limit) override;
  int Wait() override;
  void Signal(int signal) const override;
  void PassSignals() override;

 private:
  std::optional<int> Reap(int options);

  pid_t pid_;
};

// Passes signals on by this function until the next call; null for none. It must be async-signal-safe.
using PassSignal = void (*)(int target, int signal);
void PassSignalsBy(PassSignal pass, int target);

// Lets this process learn how its children end, even if it has inherited that SIGCHLD is ignored.
void CollectChildren();

// Ends this process as the worker ended: with the same status, or by the same signal.
[[noreturn]] void EndAs(int status);

}  // namespace envpack::front
