#include "front/warm_worker.h"

#include <poll.h>
#include <signal.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <utility>
#include <variant>

#include "warm/order.h"
#include "warm/processes.h"

namespace envpack::front {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kForPid(2000), kForStatus(2000), kLongest(60'000);

bool HasMessage(int socket, milliseconds limit) {
  pollfd which{socket, POLLIN, 0};
  return poll(&which, 1, static_cast<int>(std::min(limit, kLongest).count())) > 0;
}

// Nothing from a template that the model has damaged.
warm::Message ReceiveFrom(int socket) {
  try {
    return warm::Receive(socket);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "envpack stub: %s\n", error.what());
    return {};
  }
}

}  // namespace

void WarmWorker::AwaitPid() {
  if (pid() == 0) AwaitStart(kForPid);
}

std::optional<int> WarmWorker::WaitFor(milliseconds limit) {
  const auto end = Clock::now() + limit;
  if (!other_ && !process_) AwaitStart(limit);
  const auto left = std::max(std::chrono::duration_cast<milliseconds>(end - Clock::now()), milliseconds(0));
  if (other_) return other_->WaitFor(left);
  if (!process_ || !warm::HasEnded(process_.number(), left)) return std::nullopt;
  return Status();
}

int WarmWorker::Wait() {
  for (;;) {
    if (const auto status = WaitFor(kLongest)) return *status;
  }
}

void WarmWorker::AwaitStart(milliseconds limit) {
  if (!HasMessage(socket_, limit)) return;
  warm::Message message = ReceiveFrom(socket_);
  auto* started = std::get_if<warm::Started>(&message);
  if (started == nullptr) return Replace(start_cold_());
  pid_ = static_cast<pid_t>(started->pid);
  if (pid_ == child_) return Replace(std::make_unique<ForkedWorker>(child_));
  process_ = std::move(started->process);
  if (passes_signals_) PassSignals();
}

void WarmWorker::Replace(std::unique_ptr<Worker> other) {
  other_ = std::move(other);
  if (passes_signals_) other_->PassSignals();
}

// The template reaps the worker and sends its status, unless it has died: then the kernel has killed the
// worker.
int WarmWorker::Status() {
  PassSignalsBy(nullptr, 0);
  process_.Close();
  if (!HasMessage(socket_, kForStatus)) return kUnknownStatus;
  const warm::Message message = ReceiveFrom(socket_);
  const auto* ended = std::get_if<warm::Ended>(&message);
  return ended != nullptr ? ended->status : kUnknownStatus;
}

void WarmWorker::Signal(int signal) const {
  if (other_) return other_->Signal(signal);
  if (process_) warm::SignalProcess(process_.number(), signal);
}

void WarmWorker::PassSignals() {
  passes_signals_ = true;
  if (other_) return other_->PassSignals();
  if (process_) PassSignalsBy(&warm::SignalProcess, process_.number());
}

}  // namespace envpack::front
