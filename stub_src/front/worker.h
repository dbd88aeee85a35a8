// The process that runs the model, and how it is started.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "base/descriptor.h"
#include "channel/heartbeat.h"
#include "front/template.h"
#include "two_halves/body.h"

namespace envpack::front {

// In place of a status of waitpid(): the process has ended, but how is not known.
inline constexpr int kUnknownStatus = -1;

// A child of this process, or a fork of the model's template.
class Worker {
 public:
  // A child, started after CollectChildren().
  explicit Worker(pid_t child) : pid_(child), is_child_(true) {}

  // `socket` is connected to the template, which has been sent the order, and must outlive the worker.
  // `child` is the template if it is a child of this process, otherwise 0. If the template ends before the
  // worker runs, `start_cold` starts a child.
  Worker(int socket, pid_t child, std::function<pid_t()> start_cold)
      : socket_(socket), template_(child), start_cold_(std::move(start_cold)) {}

  // 0 until it is known.
  pid_t pid() const { return pid_; }

  // Waits until pid() is known, for a limited time: a fork of a template can be ready before the template has
  // said which process it is.
  void AwaitPid();

  // Waits for the end: the status of waitpid(), or nothing after the limit. Throws std::system_error.
  std::optional<int> WaitFor(std::chrono::milliseconds limit);
  int Wait();

  void Signal(int signal) const;

  // Passes signals that people send to the stub's process id on to the worker. SIGINT and SIGTERM are not
  // passed on: they come from a terminal or a container, to all processes.
  void PassSignals();

 private:
  std::optional<int> Reap(int options);
  void AwaitStart(std::chrono::milliseconds limit);
  int Status();

  const int socket_ = -1;
  const pid_t template_ = 0;
  const std::function<pid_t()> start_cold_;
  pid_t pid_ = 0;
  bool is_child_ = false;
  bool passes_signals_ = false;
  Descriptor process_;  // while a fork of the template runs
};

// Starts the workers of one stub: cold, by a fork of this process, or warm, by a fork of the template.
class Starter {
 public:
  // The heartbeat must outlive the starter, and the starter its workers.
  Starter(channel::Heartbeat& heartbeat, bool uses_environment, bool is_warm)
      : heartbeat_(heartbeat), uses_environment_(uses_environment), is_warm_(is_warm) {}

  // Throws std::system_error if no process can be created.
  std::unique_ptr<Worker> Start(const Assignment& assignment);

 private:
  pid_t StartCold(const Assignment& assignment);
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
