// The process that runs the model, and how it is started.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <memory>
#include <optional>

#include "channel/heartbeat.h"
#include "front/template.h"
#include "two_halves/body.h"

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

// Starts the workers of one stub: cold, by a fork of this process, or warm, by a fork of the model's
// template.
class Starter {
 public:
  // The heartbeat must outlive the starter, and the starter its workers.
  Starter(channel::Heartbeat& heartbeat, bool uses_environment, bool is_warm)
      : heartbeat_(heartbeat), uses_environment_(uses_environment), is_warm_(is_warm) {}

  // Throws std::system_error if no process can be created.
  std::unique_ptr<Worker> Start(const Assignment& assignment);

 private:
  std::unique_ptr<Worker> StartCold(const Assignment& assignment);
  void FindTemplateFor(const Assignment& assignment);

  channel::Heartbeat& heartbeat_;
  const bool uses_environment_;
  const bool is_warm_;
  bool has_searched_ = false;
  std::optional<Template> template_;
};

// Lets this process learn how its children end, even if it has inherited that SIGCHLD is ignored.
void CollectChildren();

// Ends this process as the worker ended: with the same status, or by the same signal.
[[noreturn]] void EndAs(int status);

}  // namespace envpack::front
