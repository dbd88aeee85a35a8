#include "model/template.h"

#include <fcntl.h>
#include <pybind11/pybind11.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <variant>
#include <vector>

#include "base/descriptor.h"
#include "base/files.h"
#include "base/output.h"
#include "base/signals.h"
#include "base/threads.h"
#include "model/interpreter.h"
#include "module/error.h"
#include "warm/template_service.h"

namespace py = pybind11;

namespace envpack::model {

namespace {

// For the journal, the region, and the stacks of the stub's threads.
constexpr std::size_t kForWorker = std::size_t{32} << 20;

constexpr unsigned kForFork = 5;  // seconds
constexpr std::size_t kMostMaps = std::size_t{64} << 20, kMostName = 64;
constexpr std::string_view kFlags = "VmFlags:", kNoCopy = " dc";  // of /proc/self/smaps

// Have no state that processes could share.
constexpr std::string_view kHarmlessDevices[] = {"/dev/null", "/dev/zero", "/dev/full", "/dev/random",
                                                 "/dev/urandom"};

std::set<int> OpenDescriptors() {
  std::set<int> open;
  for (const std::string& name : NamesIn("/proc/self/fd")) {
    const int number = std::atoi(name.c_str());
    if (fcntl(number, F_GETFD) >= 0) open.insert(number);  // not the one that lists them
  }
  return open;
}

// Calls `each` with permissions and path of every mapping.
void ForEachMapping(const std::function<void(std::string_view, std::string_view)>& each) {
  const std::string maps = ReadFile("/proc/self/maps", kMostMaps);
  for (std::string_view rest = maps; !rest.empty();) {
    const std::string_view line = TakePart(rest, '\n');
    const auto permissions = line.find(' ') + 1;
    const auto path = line.find_first_of("/[", permissions);
    each(line.substr(permissions, 4), path == line.npos ? std::string_view() : line.substr(path));
  }
}

bool IsMapped(std::string_view path) {
  bool found = false;
  ForEachMapping([&](std::string_view, std::string_view mapped) { found = found || mapped == path; });
  return found;
}

// Processes share the position of an open file, unless each write goes to the end.
bool IsShareable(int descriptor, const std::string& target) {
  if (std::find(std::begin(kHarmlessDevices), std::end(kHarmlessDevices), target) !=
      std::end(kHarmlessDevices)) {
    return true;
  }
  struct stat facts{};
  if (fstat(descriptor, &facts) != 0) return true;  // closed meanwhile
  if (S_ISDIR(facts.st_mode)) return true;
  const int flags = fcntl(descriptor, F_GETFL);
  if (!S_ISREG(facts.st_mode)) return false;
  return (flags & O_APPEND) != 0 || ((flags & O_ACCMODE) == O_RDONLY && IsMapped(target));
}

std::optional<std::string> FindOpenFile(const std::set<int>& before) {
  for (const int descriptor : OpenDescriptors()) {
    if (before.count(descriptor) != 0) continue;
    const std::string target = LinkTarget("/proc/self/fd/" + std::to_string(descriptor));
    if (IsShareable(descriptor, target)) continue;
    return "the model has left descriptor " + std::to_string(descriptor) + " open, " + target;
  }
  return std::nullopt;
}

std::optional<std::string> FindSharedMapping() {
  std::optional<std::string> found;
  ForEachMapping([&](std::string_view permissions, std::string_view path) {
    if (!found && permissions[1] == 'w' && permissions[3] == 's') {
      found = "the model has mapped shared memory, " + std::string(path);
    }
  });
  return found;
}

// Memory of devices, and what a library has excluded from forks: a copy that uses it crashes.
std::optional<std::string> FindMemoryWithoutCopy() {
  const std::string maps = ReadFile("/proc/self/smaps", kMostMaps);
  for (std::string_view rest = maps; !rest.empty();) {
    const std::string_view line = TakePart(rest, '\n');
    if (line.substr(0, kFlags.size()) == kFlags && line.find(kNoCopy) != line.npos) {
      return "the model has memory that a fork does not copy";
    }
  }
  return std::nullopt;
}

std::optional<std::string> FindChild() {
  siginfo_t info{};
  const int code = waitid(P_ALL, 0, &info, WEXITED | WSTOPPED | WCONTINUED | WNOHANG | WNOWAIT);
  if (code != 0 && errno == ECHILD) return std::nullopt;
  return "the model has started processes";
}

// Forked processes do not inherit timers.
std::optional<std::string> FindTimer() {
  for (const auto which : {ITIMER_REAL, ITIMER_VIRTUAL, ITIMER_PROF}) {
    itimerval timer{};
    if (getitimer(which, &timer) == 0 && timerisset(&timer.it_value)) return "the model has set a timer";
  }
  if (!ReadFile("/proc/self/timers", 1).empty()) return "the model has set a timer";
  return std::nullopt;
}

std::vector<std::string> OtherThreads() {
  std::vector<std::string> names;
  for (const std::string& id : NamesIn("/proc/self/task")) {
    if (id == std::to_string(getpid())) continue;
    const std::string name = ReadFile("/proc/self/task/" + id + "/comm", kMostName);
    names.push_back(name.substr(0, name.find('\n')));
  }
  return names;
}

// While it exists: handlers of forks that do not return end this process, and say so.
class ForkLimit {
 public:
  ForkLimit() {
    before_ = SetHandler(SIGALRM, [](int) {
      constexpr char kText[] = "envpack stub: a model starts cold: a handler of forks does not return\n";
      const ssize_t written = write(STDERR_FILENO, kText, sizeof(kText) - 1);
      _exit(written > 0 ? 1 : 2);
    });
    alarm(kForFork);
  }
  ~ForkLimit() {
    alarm(0);
    sigaction(SIGALRM, &before_, nullptr);
  }
  ForkLimit(ForkLimit&&) = delete;

 private:
  struct sigaction before_{};
};

// Whether handlers of forks let a child run, and which threads they leave. A library that knows of forks ends
// its threads before each, and starts them again when they are needed, as OpenBLAS does.
std::optional<std::string> TryFork() {
  pid_t pid;
  {
    const ForkLimit limit;
    pid = ForkInterpreter();
    if (pid == 0) _exit(0);
  }
  if (pid < 0) return "the process cannot be forked";
  const Descriptor child = OpenProcess(pid);
  // While the model ignores SIGCHLD, a child that has ended is gone.
  const bool has_ended = !child || HasEnded(child.number(), std::chrono::seconds(kForFork));
  if (!has_ended) SignalProcess(child.number(), SIGKILL);
  int status = 0;
  waitpid(pid, &status, 0);
  if (!has_ended) return "a handler of forks does not return";
  if (status != 0) return "a handler of forks ends the process";
  const auto names = OtherThreads();
  if (names.empty()) return std::nullopt;
  return "the model has started threads that a fork does not end (" + std::to_string(names.size()) + ", '" +
         names.front() + "')";
}

// What the model has left too little of for a worker, in words: descriptors, memory or threads.
std::optional<std::string> FindShortage() {
  constexpr char kNoRoom[] = "the model has left no room for ";
  if (!Descriptor(open("/dev/null", O_RDONLY | O_CLOEXEC))) {
    return std::string(kNoRoom) + "a descriptor: " + std::strerror(errno);
  }
  void* memory =
      mmap(nullptr, kForWorker, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return std::string(kNoRoom) + "32 MiB of memory: " + std::strerror(errno);
  munmap(memory, kForWorker);
  try {
    StartThread("pbstub-probe", [] {}).join();
  } catch (const std::system_error& error) {
    return std::string(kNoRoom) + "a thread: " + std::strerror(error.code().value());
  }
  return std::nullopt;
}

// What the model has left that a fork shares, loses or damages, in words; nothing if a fork is safe. `before`
// are the descriptors that were open before. Forks a process that ends at once, to find handlers of forks
// that do not return, and threads that these handlers do not end. Needs the GIL.
std::optional<std::string> FindObstacle(const std::set<int>& before) {
  for (const auto& find : {FindSharedMapping, FindMemoryWithoutCopy, FindChild, FindTimer}) {
    if (auto found = find()) return found;
  }
  if (auto found = FindOpenFile(before)) return found;
  return TryFork();
}

void PrintColdStart(const std::string& name, const std::string& reason) {
  Print("'" + name + "' starts cold", reason);
}

// Objects that exist now are never examined again: the collector writes to those that it examines, and pages
// that nobody writes to stay shared.
void Freeze() {
  const auto gc = py::module_::import("gc");
  gc.attr("collect")();
  if (py::hasattr(gc, "freeze")) gc.attr("freeze")();  // from Python 3.7 on
}

// From Python 3.7 on, the module `random` does this by itself after a fork.
void SeedGenerators() {
  for (const char* name : {"random", "numpy.random"}) {
    if (const py::object module = module::FindModule(name)) module.attr("seed")();
  }
}

bool InitializeFor(const Assignment& first, PythonModel& model) {
  const std::set<int> open_before = OpenDescriptors();
  const auto& command = std::get<abi::InitializeCommand>(first.command);
  std::optional<std::string> obstacle;
  if (const auto failure = CallModel([&] { model.Initialize(command.arguments); })) {
    obstacle = "initialize() fails in the template: " + failure->text;
  } else {
    obstacle = FindShortage();
    if (!obstacle) obstacle = FindObstacle(open_before);
  }
  if (obstacle) {
    PrintColdStart(first.launch.name, *obstacle);
    return false;
  }
  Freeze();
  return true;
}

}  // namespace

std::optional<WarmStart> ServeAsTemplate(const TemplateTask& task) {
  const pid_t front = getppid();
  warm::TemplateService service(Descriptor(task.listener), static_cast<pid_t>(task.launch.server_pid), front);
  const std::set<int> open_before = OpenDescriptors();
  std::unique_ptr<PythonModel> model;
  if (CallModel([&] { model = std::make_unique<PythonModel>(task.launch); })) return std::nullopt;
  if (const auto shortage = FindShortage()) {
    PrintColdStart(task.launch.name, *shortage);
    return std::nullopt;
  }
  if (const auto obstacle = FindObstacle(open_before)) {
    PrintColdStart(task.launch.name, *obstacle);
    return WarmStart{service.BecomeWorker(), std::move(model)};
  }
  Freeze();
  Assignment assignment =
      service.Serve({ForkInterpreter, [&](const Assignment& first) { return InitializeFor(first, *model); }});
  SeedGenerators();
  model->BecomeInstance(assignment.launch.name, true);
  return WarmStart{std::move(assignment), std::move(model)};
}

}  // namespace envpack::model
