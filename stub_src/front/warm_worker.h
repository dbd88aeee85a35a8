// A worker that the model's template forks.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>

#include "base/descriptor.h"
#include "front/worker.h"

namespace envpack::front {

class WarmWorker final : public Worker {
 public:
  using StartCold = std::function<std::unique_ptr<Worker>()>;

  // `socket` is connected to the template, which has been sent the order, and must outlive the worker.
  // `child` is the template if it is a child of this process, otherwise 0. If the template ends before the
  // worker runs, `start_cold` starts it.
  WarmWorker(int socket, pid_t child, StartCold start_cold)
      : socket_(socket), child_(child), start_cold_(std::move(start_cold)) {}

  pid_t pid() const override { return other_ ? other_->pid() : pid_; }
  void AwaitPid() override;
  std::optional<int> WaitFor(std::chrono::milliseconds limit) override;
  int Wait() override;
  void Signal(int signal) const override;
  void PassSignals() override;

 private:
  void AwaitStart(std::chrono::milliseconds limit);
  void Replace(std::unique_ptr<Worker> other);
  int Status();

  const int socket_;
  const pid_t child_;
  const StartCold start_cold_;
  bool passes_signals_ = false;
  pid_t pid_ = 0;
  Descriptor process_;             // when the worker runs
  std::unique_ptr<Worker> other_;  // a child of this process that runs instead
};

}  // namespace envpack::front
