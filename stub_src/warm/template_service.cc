#include "warm/template_service.h"

#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <system_error>
#include <utility>
#include <variant>
#include <vector>

#include "base/output.h"
#include "base/signals.h"

namespace envpack::warm {

namespace {

using std::chrono::milliseconds;

// The server starts the instances of a load as soon as it has the completed configuration. Later fronts
// belong to another load, which must find the model as it is then.
constexpr std::chrono::seconds kForInstances(30);
constexpr std::size_t kMostFronts = 4096;

bool IsSameFile(const std::string& one, const std::string& other) {
  struct stat a{}, b{};
  return stat(one.c_str(), &a) == 0 && stat(other.c_str(), &b) == 0 && a.st_dev == b.st_dev &&
         a.st_ino == b.st_ino;
}

// A front runs the same file as this process.
bool IsFront(int socket) {
  return IsTrusted(socket) &&
         IsSameFile("/proc/" + std::to_string(PeerOf(socket)) + "/exe", "/proc/self/exe");
}

// Nothing from a front that sends what is no message.
Message ReceiveFrom(int socket) {
  try {
    return Receive(socket);
  } catch (const std::exception& error) {
    Print("a template has ignored a process", error.what());
    return {};
  }
}

void PrintFailure(const char* what, int code) {
  Print(std::string("a template ") + what + ", so the model starts cold", std::strerror(code));
}

// False, with errno set, if there is no room for a further descriptor, or the front has ended.
bool Announce(int socket, pid_t worker) {
  Started started{worker, OpenProcess(worker)};
  return started.process && Send(socket, started);
}

[[noreturn]] void End() {
  std::fflush(stdout);
  _exit(0);
}

}  // namespace

TemplateService::TemplateService(Descriptor listener, pid_t server, pid_t front)
    : listener_(std::move(listener)), server_(OpenProcess(server)), front_(front) {
  if (!server_) FailBySystem("cannot watch the server's process");
}

Assignment TemplateService::Serve(const Actions& actions) {
  // The front that has made this process may end before it: it may only have completed the configuration.
  prctl(PR_SET_PDEATHSIG, 0);
  open_until_ = Clock::now() + kForInstances;
  CollectChildren();
  while (IsNeeded()) {
    AwaitEvents();
    ReportEnds();
    if (auto order = TakeOrders(actions)) return *std::move(order);
    Accept();
    if (Clock::now() > open_until_) StopListening();
  }
  End();
}

Assignment TemplateService::BecomeWorker() {
  for (;;) {
    Descriptor socket = AcceptOne();
    if (!socket || PeerOf(socket.number()) != front_) continue;
    StopListening();
    Message message = ReceiveFrom(socket.number());
    auto* order = std::get_if<Assignment>(&message);
    if (order == nullptr) End();
    if (!Announce(socket.number(), getpid())) End();
    return std::move(*order);
  }
}

// Fronts end with the server, and their workers with them.
bool TemplateService::IsNeeded() const {
  if (!fronts_.empty()) return true;
  return awaits_instances_ && listener_ && !HasEnded(server_.number());
}

void TemplateService::AwaitEvents() {
  std::vector<pollfd> events;
  if (fronts_.empty()) events.push_back({server_.number(), POLLIN, 0});
  if (listener_) events.push_back({listener_.number(), POLLIN, 0});
  for (const Front& front : fronts_) {
    events.push_back({front.socket.number(), POLLIN, 0});
    if (front.worker) events.push_back({front.worker.number(), POLLIN, 0});
  }
  int limit = -1;
  if (listener_) {
    const auto left = std::chrono::ceil<milliseconds>(open_until_ - Clock::now());
    limit = static_cast<int>(std::max(left, milliseconds(0)).count());
  }
  poll(events.data(), events.size(), limit);
}

// Reaps workers and passes on how they ended.
void TemplateService::ReportEnds() {
  for (Front& front : fronts_) {
    if (!front.worker || !HasEnded(front.worker.number())) continue;
    int status = 0;
    if (waitpid(front.pid, &status, 0) == front.pid) Send(front.socket.number(), Ended{status});
    front.worker.Close();
  }
}

// Without shutdown(), fronts could connect as long as a process that is just being forked has a copy.
void TemplateService::StopListening() {
  if (listener_) shutdown(listener_.number(), SHUT_RDWR);
  listener_.Close();
}

// While a model ignores SIGCHLD, the kernel discards how the workers end.
void TemplateService::CollectChildren() { for_children_ = SetHandler(SIGCHLD, SIG_DFL); }

// Empty if the process is no front. Throws std::system_error if the model has left no room for a descriptor:
// the process stays in the queue then.
Descriptor TemplateService::AcceptOne() {
  Descriptor socket(accept4(listener_.number(), nullptr, nullptr, SOCK_CLOEXEC));
  if (!socket && errno != ECONNABORTED && errno != EINTR) FailBySystem("a template cannot accept a stub");
  if (socket && !IsFront(socket.number())) socket.Close();
  return socket;
}

void TemplateService::Accept() {
  try {
    while (listener_ && fronts_.size() < kMostFronts && IsReadable(listener_.number())) {
      if (Descriptor socket = AcceptOne()) {
        fronts_.emplace_back().socket = std::move(socket);
        open_until_ = Clock::now() + kForInstances;
      }
    }
  } catch (const std::system_error& error) {
    PrintFailure("cannot accept a stub", error.code().value());
    StopListening();  // the stubs that wait find that there is no template
  }
}

// Returns an order in the worker that has been forked for it.
std::optional<Assignment> TemplateService::TakeOrders(const Actions& actions) {
  for (auto front = fronts_.begin(); front != fronts_.end();) {
    if (!IsReadable(front->socket.number())) {
      ++front;
      continue;
    }
    Message message = ReceiveFrom(front->socket.number());
    if (auto* order = std::get_if<Assignment>(&message); order != nullptr && !front->worker) {
      if (auto own = Fork(*front, std::move(*order), actions)) return own;
      ++front;
      continue;
    }
    if (std::holds_alternative<Retire>(message)) StopListening();
    Leave(*front);
    front = fronts_.erase(front);
  }
  return std::nullopt;
}

std::optional<Assignment> TemplateService::Fork(Front& front, Assignment order, const Actions& actions) {
  front.completes = std::holds_alternative<abi::AutoCompleteCommand>(order.command);
  if (!front.completes) awaits_instances_ = false;
  if (!front.completes && order.initialize_in_template && !is_initialized_) {
    is_initialized_ = true;
    sigaction(SIGCHLD, &for_children_, nullptr);
    if (!actions.initialize(order)) End();
    CollectChildren();
  }
  const pid_t self = getpid();
  const pid_t pid = actions.fork();
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != self) _exit(1);
    sigaction(SIGCHLD, &for_children_, nullptr);
    fronts_.clear();
    listener_.Close();
    server_.Close();
    return order;
  }
  Watch(front, pid);
  return std::nullopt;
}

// If that fails, for want of processes or descriptors, the front finds that there is no template.
void TemplateService::Watch(Front& front, pid_t pid) {
  if (pid > 0) {
    front.pid = pid;
    front.worker = OpenProcess(pid);
    if (front.worker && Announce(front.socket.number(), pid)) return;
    PrintFailure("cannot watch a process", errno);
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
    front.worker.Close();
  } else {
    PrintFailure("cannot fork a process", errno);
  }
  shutdown(front.socket.number(), SHUT_RDWR);
}

// A worker does not outlive its front.
void TemplateService::Leave(Front& front) {
  if (front.worker) {
    SignalProcess(front.worker.number(), SIGKILL);
    waitpid(front.pid, nullptr, 0);
  }
  if (front.completes) open_until_ = Clock::now() + kForInstances;
}

}  // namespace envpack::warm
