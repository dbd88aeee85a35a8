#include "front/starter.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <functional>
#include <utility>
#include <variant>

#include "base/descriptor.h"
#include "warm/order.h"
#include "warm/processes.h"

namespace envpack::front {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kForPid(2000), kForStatus(2000), kLongest(60'000);

// Nothing from a template that the model has damaged.
warm::Message ReceiveFrom(int socket) {
  try {
    return warm::Receive(socket);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "envpack stub: %s\n", error.what());
    return {};
  }
}

// A worker that the model's template forks.
class WarmWorker final : public Worker {
 public:
  using ColdStart = std::function<std::unique_ptr<Worker>()>;

  // `socket` is connected to the template, which has been sent the order, and must outlive the worker.
  // `child` is the template if it is a child of this process, otherwise 0. If the template ends before the
  // worker runs, `start_cold` starts it.
  WarmWorker(int socket, pid_t child, ColdStart start_cold)
      : socket_(socket), child_(child), start_cold_(std::move(start_cold)) {}

  pid_t pid() const override { return other_ ? other_->pid() : pid_; }

  void AwaitPid() override {
    if (pid() == 0) AwaitStart(kForPid);
  }

  std::optional<int> WaitFor(milliseconds limit) override {
    const auto end = Clock::now() + limit;
    if (!other_ && !process_) AwaitStart(limit);
    const auto left = std::max(std::chrono::duration_cast<milliseconds>(end - Clock::now()), milliseconds(0));
    if (other_) return other_->WaitFor(left);
    if (!process_ || !warm::HasEnded(process_.number(), left)) return std::nullopt;
    return Status();
  }

  int Wait() override {
    for (;;) {
      if (const auto status = WaitFor(kLongest)) return *status;
    }
  }

  void AwaitStart(milliseconds limit) {
    if (!IsReadable(socket_, limit)) return;
    warm::Message message = ReceiveFrom(socket_);
    auto* started = std::get_if<warm::Started>(&message);
    if (started == nullptr) return Replace(start_cold_());
    pid_ = static_cast<pid_t>(started->pid);
    if (pid_ == child_) return Replace(std::make_unique<ForkedWorker>(child_));
    process_ = std::move(started->process);
    if (passes_signals_) PassSignals();
  }

  void Replace(std::unique_ptr<Worker> other) {
    other_ = std::move(other);
    if (passes_signals_) other_->PassSignals();
  }

  // The template reaps the worker and sends its status, unless it has died: then the kernel has killed the
  // worker.
  int Status() {
    PassSignalsBy(nullptr, 0);
    process_.Close();
    if (!IsReadable(socket_, kForStatus)) return kUnknownStatus;
    const warm::Message message = ReceiveFrom(socket_);
    const auto* ended = std::get_if<warm::Ended>(&message);
    return ended != nullptr ? ended->status : kUnknownStatus;
  }

  void Signal(int signal) const override {
    if (other_) return other_->Signal(signal);
    if (process_) warm::SignalProcess(process_.number(), signal);
  }

  void PassSignals() override {
    passes_signals_ = true;
    if (other_) return other_->PassSignals();
    if (process_) PassSignalsBy(&warm::SignalProcess, process_.number());
  }

 private:
  const int socket_;
  const pid_t child_;
  const ColdStart start_cold_;
  bool passes_signals_ = false;
  pid_t pid_ = 0;
  Descriptor process_;             // when the worker runs
  std::unique_ptr<Worker> other_;  // a child of this process that runs instead
};

}  // namespace

std::unique_ptr<Worker> Starter::Start(const Assignment& assignment) {
  if (is_warm_ && !std::exchange(has_searched_, true)) FindTemplateFor(assignment);
  if (!template_ || !warm::Send(template_->socket.number(), assignment)) return StartCold(assignment);
  return std::make_unique<WarmWorker>(template_->socket.number(), template_->child, [this, assignment] {
    template_.reset();
    return StartCold(assignment);
  });
}

std::unique_ptr<Worker> Starter::StartCold(const Assignment& assignment) {
  std::unique_ptr<Worker> worker;
  heartbeat_.StopWhile(
      [&] { worker = std::make_unique<ForkedWorker>([&] { return RunBody(&assignment); }); });
  return worker;
}

void Starter::FindTemplateFor(const Assignment& assignment) {
  const bool is_new_load = std::holds_alternative<abi::AutoCompleteCommand>(assignment.command);
  try {
    template_ = FindTemplate(assignment.launch, assignment.release, uses_environment_, is_new_load);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "envpack stub: '%s' starts cold: %s\n", assignment.launch.name.c_str(),
                 error.what());
  }
}

}  // namespace envpack::front
