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

std::array<Disposition, 5> passed{
    {{SIGHUP, {}}, {SIGQUIT, {}}, {SIGUSR1, {}}, {SIGUSR2, {}}, {SIGWINCH, {}}}};
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
  for (Disposition& each : passed) {
    sigaction(each.signal, nullptr, &each.action);
    if (each.action.sa_handler != SIG_IGN) SetHandler(each.signal, Pass);
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
    for (const Disposition& each : passed) sigaction(each.signal, &each.action, nullptr);
  }
  int status = 1;
  try {
    status = work();
  } catch (const std::exception& error) {
    Print(error.what());
  }
  ExitFlushed(status);
}

// Starts a child, which runs `work` and ends with its result. At that time no other thread may run, since the
// process inherits the locks that it has. The calling thread must live as long as this process: the kernel
// kills the worker when that thread ends. Throws std::system_error if the process cannot be created.
pid_t Fork(const std::function<int()>& work) {
  const struct sigaction& for_children = DefaultForChildren();
  const pid_t front = getpid();
  const pid_t pid = fork();
  if (pid < 0) FailBySystem("cannot create a process for the model");
  if (pid == 0) Run(front, for_children, work);
  return pid;
}

// Nothing from a template that the model has damaged.
warm::Message ReceiveFrom(int socket) {
  try {
    return warm::Receive(socket);
  } catch (const std::exception& error) {
    Print(error.what());
    return {};
  }
}

}  // namespace

void Worker::AwaitPid() {
  if (pid_ == 0) AwaitStart(kForPid);
}

std::optional<int> Worker::WaitFor(milliseconds limit) {
  const auto end = Clock::now() + limit;
  const auto left = [&] {
    return std::max(std::chrono::duration_cast<milliseconds>(end - Clock::now()), milliseconds(0));
  };
  if (!is_child_ && !process_) AwaitStart(limit);
  if (!is_child_) {
    if (!process_ || !HasEnded(process_.number(), left())) return std::nullopt;
    return Status();
  }
  for (milliseconds pause = kShortest;; pause = std::min(2 * pause, kLongest)) {
    if (const auto status = Reap(WNOHANG)) return status;
    const milliseconds rest = left();
    if (rest.count() == 0) return std::nullopt;
    std::this_thread::sleep_for(std::min(pause, rest));
  }
}

int Worker::Wait() {
  while (!is_child_) {
    if (const auto status = WaitFor(kLongestWait)) return *status;
  }
  return *Reap(0);
}

void Worker::Signal(int signal) const {
  if (is_child_) kill(pid_, signal);
  if (process_) SignalProcess(process_.number(), signal);
}

void Worker::PassSignals() {
  passes_signals_ = true;
  if (is_child_) PassSignalsBy([](int pid, int signal) { kill(pid, signal); }, pid_);
  if (process_) PassSignalsBy(&SignalProcess, process_.number());
}

// When the worker is reaped, its process id may become another process's.
std::optional<int> Worker::Reap(int options) {
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

void Worker::AwaitStart(milliseconds limit) {
  if (!IsReadable(socket_, limit)) return;
  warm::Message message = ReceiveFrom(socket_);
  if (auto* started = std::get_if<warm::Started>(&message)) {
    pid_ = static_cast<pid_t>(started->pid);
    is_child_ = pid_ == template_;
    if (!is_child_) process_ = std::move(started->process);
  } else {
    pid_ = start_cold_();
    is_child_ = true;
  }
  if (passes_signals_) PassSignals();
}

// The template sends the worker's status, unless it has died: then the kernel has killed the worker.
int Worker::Status() {
  PassSignalsBy(nullptr, 0);
  process_.Close();
  if (!IsReadable(socket_, kForStatus)) return kUnknownStatus;
  const warm::Message message = ReceiveFrom(socket_);
  const auto* ended = std::get_if<warm::Ended>(&message);
  return ended != nullptr ? ended->status : kUnknownStatus;
}

std::unique_ptr<Worker> Starter::Start(const Assignment& assignment) {
  if (is_warm_ && !std::exchange(has_searched_, true)) FindTemplateFor(assignment);
  if (!template_ || !warm::Send(template_->socket.number(), assignment)) {
    return std::make_unique<Worker>(StartCold(assignment));
  }
  return std::make_unique<Worker>(template_->socket.number(), template_->child, [this, assignment] {
    template_.reset();
    return StartCold(assignment);
  });
}

pid_t Starter::StartCold(const Assignment& assignment) {
  pid_t pid = 0;
  heartbeat_.StopWhile([&] { pid = Fork([&] { return RunBody(&assignment); }); });
  return pid;
}

void Starter::FindTemplateFor(const Assignment& assignment) {
  try {
    template_ = FindTemplate(assignment, uses_environment_);
  } catch (const std::exception& error) {
    Print("'" + assignment.launch.name + "' starts cold", error.what());
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
