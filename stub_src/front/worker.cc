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
#include <thread>
#include <utility>

#include "base/descriptor.h"
#include "base/output.h"

namespace envpack::front {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kShortest(1), kLongest(20);

struct Passed {
  int signal;
  struct sigaction before;
};
std::array<Passed, 5> passed{{{SIGHUP, {}}, {SIGQUIT, {}}, {SIGUSR1, {}}, {SIGUSR2, {}}, {SIGWINCH, {}}}};
std::atomic<PassSignal> pass_signal{nullptr};
std::atomic<int> receiver{0};
bool passes = false;

void Pass(int signal) {
  const int code = errno;
  if (const PassSignal pass = pass_signal) pass(receiver, signal);
  errno = code;
}

void SetAction(int signal, void (*handler)(int)) {
  struct sigaction action{};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  sigaction(signal, &action, nullptr);
}

// While SIGCHLD is ignored, the kernel discards the exit status of children. The stub inherits that from the
// server's parents. Returns what it has inherited.
const struct sigaction& DefaultForChildren() {
  static const struct sigaction inherited = [] {
    struct sigaction now{};
    struct sigaction before;
    now.sa_handler = SIG_DFL;
    sigaction(SIGCHLD, &now, &before);
    return before;
  }();
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
  FlushOutput();
  _exit(status);
}

}  // namespace

ForkedWorker::ForkedWorker(const std::function<int()>& work) {
  const struct sigaction& for_children = DefaultForChildren();
  const pid_t front = getpid();
  pid_ = fork();
  if (pid_ < 0) FailBySystem("cannot create a process for the model");
  if (pid_ == 0) Run(front, for_children, work);
}

// When the worker is reaped, its process id may become another process's.
std::optional<int> ForkedWorker::Reap(int options) {
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

std::optional<int> ForkedWorker::WaitFor(milliseconds limit) {
  const auto end = Clock::now() + limit;
  for (milliseconds pause = kShortest;; pause = std::min(2 * pause, kLongest)) {
    if (const auto status = Reap(WNOHANG)) return status;
    const auto left = std::chrono::duration_cast<milliseconds>(end - Clock::now());
    if (left.count() <= 0) return std::nullopt;
    std::this_thread::sleep_for(std::min(pause, left));
  }
}

int ForkedWorker::Wait() { return *Reap(0); }

void ForkedWorker::Signal(int signal) const { kill(pid_, signal); }

void ForkedWorker::PassSignals() {
  PassSignalsBy([](int pid, int signal) { kill(pid, signal); }, pid_);
}

void CollectChildren() { DefaultForChildren(); }

void EndAs(int status) {
  FlushOutput();
  if (WIFSIGNALED(status)) {
    const rlimit none{};  // the worker has left a core file, if any
    setrlimit(RLIMIT_CORE, &none);
    SetAction(WTERMSIG(status), SIG_DFL);
    raise(WTERMSIG(status));
  }
  _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
}

void PassSignalsBy(PassSignal pass, int target) {
  pass_signal = nullptr;
  receiver = target;
  pass_signal = pass;
  if (std::exchange(passes, true)) return;
  for (Passed& each : passed) {
    sigaction(each.signal, nullptr, &each.before);
    if (each.before.sa_handler != SIG_IGN) SetAction(each.signal, Pass);
  }
}

}  // namespace envpack::front
