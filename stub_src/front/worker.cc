#include "front/worker.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <exception>
#include <functional>
#include <thread>
#include <utility>
#include <variant>

#include "base/output.h"
#include "base/signals.h"
#include "warm/order.h"

namespace envpack::front {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kShortest(1), kLongest(20);
constexpr milliseconds kForPid(2000), kForStatus(2000), kLongestWait(60'000);

struct Passed {
  int signal;
  struct sigaction before;
};
std::array<Passed, 5> passed{{{SIGHUP, {}}, {SIGQUIT, {}}, {SIGUSR1, {}}, {SIGUSR2, {}}, {SIGWINCH, {}}}};
// Async-signal-safe.
using PassSignal = void (*)(int target, int signal);
std::atomic<PassSignal> pass_signal{nullptr};
std::atomic<int> receiver{0};
bool passes = false;

void Pass(int signal) {
  const int code = errno;
  if (const PassSignal pass = pass_signal) pass(receiver, signal);
  errno = code;
}

// Passes signals on by this function until the next call; null for none.
void PassSignalsBy(PassSignal pass, int target) {
  pass_signal = nullptr;
  receiver = target;
  pass_signal = pass;
  if (std::exchange(passes, true)) return;
  for (Passed& each : passed) {
    sigaction(each.signal, nullptr, &each.before);
    if (each.before.sa_handler != SIG_IGN) SetHandler(each.signal, Pass);
  }
}

// While SIGCHLD is ignored, the kernel discards the exit status of children. The stub inherits that from the
// server's parents. Returns what it has inherited.
const struct sigaction& DefaultForChildren() {
  static const struct sigaction inherited = SetHandler(SIGCHLD, SIG_DFL);
  return inherited;
}

[[noreturn]] void Run(pid_t front, const struct sigaction& for_children, const std::function<int()>& work) {
  sigaction(SIGCHLD, &for_children, nullptr);
  // The server kills the front only.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != front) _exit(1);
  pass_signal = nullptr;
  if (passes) {
    for (const Passed& each : passed) sigaction(each.signal, &each.before, nullptr);
  }
  int status = 1;
  try {
    status = work();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "envpack stub: %s\n", error.what());
  }
  ExitFlushed(status);
}

// A child of this process. The constructor starts it: it runs `work` and ends with its result. At that time
// no other thread may run, since the process inherits the locks that it has. The constructing thread must
// live as long as this process: the kernel kills the worker when that thread ends.
class ForkedWorker final : public Worker {
 public:
  // Throws std::system_error if the process cannot be created.
  explicit ForkedWorker(const std::function<int()>& work) {
    const struct sigaction& for_children = DefaultForChildren();
    const pid_t front = getpid();
    pid_ = fork();
    if (pid_ < 0) FailBySystem("cannot create a process for the model");
    if (pid_ == 0) Run(front, for_children, work);
  }
  // For a child that has been started otherwise, after CollectChildren().
  explicit ForkedWorker(pid_t pid) : pid_(pid) {}

  pid_t pid() const override { return pid_; }

  void AwaitPid() override {}

  std::optional<int> WaitFor(milliseconds limit) override {
    const auto end = Clock::now() + limit;
    for (milliseconds pause = kShortest;; pause = std::min(2 * pause, kLongest)) {
      if (const auto status = Reap(WNOHANG)) return status;
      const auto left = std::chrono::duration_cast<milliseconds>(end - Clock::now());
      if (left.count() <= 0) return std::nullopt;
      std::this_thread::sleep_for(std::min(pause, left));
    }
  }

  int Wait() override { return *Reap(0); }

  void Signal(int signal) const override { kill(pid_, signal); }

  void PassSignals() override {
    PassSignalsBy([](int pid, int signal) { kill(pid, signal); }, pid_);
  }

 private:
  // When the worker is reaped, its process id may become another process's.
  std::optional<int> Reap(int options) {
    siginfo_t info{};
    int code;
    do code = waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOWAIT | options);
    while (code != 0 && errno == EINTR);
    if (code == 0 && info.si_pid == 0) return std::nullopt;
    pass_signal = nullptr;
    int status = 0;
    if (code != 0 || waitpid(pid_, &status, 0) != pid_) FailBySystem("cannot wait for the model's process");
    return status;
  }

  pid_t pid_;
};

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
    if (!process_ || !HasEnded(process_.number(), left)) return std::nullopt;
    return Status();
  }

  int Wait() override {
    for (;;) {
      if (const auto status = WaitFor(kLongestWait)) return *status;
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
    if (process_) SignalProcess(process_.number(), signal);
  }

  void PassSignals() override {
    passes_signals_ = true;
    if (other_) return other_->PassSignals();
    if (process_) PassSignalsBy(&SignalProcess, process_.number());
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
  try {
    template_ = FindTemplate(assignment, uses_environment_);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "envpack stub: '%s' starts cold: %s\n", assignment.launch.name.c_str(),
                 error.what());
  }
}

void CollectChildren() { DefaultForChildren(); }

void EndAs(int status) {
  FlushOutput();
  if (WIFSIGNALED(status)) {
    const rlimit none{};  // the worker has left a core file, if any
    setrlimit(RLIMIT_CORE, &none);
    SetHandler(WTERMSIG(status), SIG_DFL);
    raise(WTERMSIG(status));
  }
  _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
}

}  // namespace envpack::front
