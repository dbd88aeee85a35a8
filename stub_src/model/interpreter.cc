#include "model/interpreter.h"

#include <dlfcn.h>
#include <pybind11/embed.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <string_view>
#include <system_error>
#include <thread>
#include <vector>

#include "base/files.h"
#include "base/forks.h"
#include "base/output.h"
#include "base/signals.h"
#include "base/threads.h"
#include "model/python_api.h"
#include "module/module.h"
#include "two_halves/build_info.h"

namespace py = pybind11;

namespace envpack::model {

namespace {

constexpr std::chrono::seconds kMostForShutdown(5);
constexpr std::size_t kMostConfiguration = 1 << 16;  // bytes of pyvenv.cfg

std::string instance_name;
std::string notice;
int output = STDERR_FILENO;
// The signals that faulthandler handles.
std::array<Disposition, 5> handlers{{{SIGSEGV, {}}, {SIGBUS, {}}, {SIGFPE, {}}, {SIGILL, {}}, {SIGABRT, {}}}};

// Writes the notice, restores faulthandler's handler and raises the signal again. The signal is blocked until
// this handler returns. faulthandler writes to standard error, which the front reads.
void Notice(int signal) {
  dup2(output, STDERR_FILENO);
  const ssize_t written = write(STDERR_FILENO, notice.data(), notice.size());
  static_cast<void>(written);  // standard error may be closed
  for (const Disposition& handler : handlers) {
    if (handler.signal == signal) sigaction(signal, &handler.action, nullptr);
  }
  raise(signal);
}

// Names the model instance in front of Python's traceback of a crash: the server's log contains the output of
// all instances. Call it after faulthandler is enabled.
void InstallCrashNotice() {
  for (Disposition& handler : handlers) {
    sigaction(handler.signal, nullptr, &handler.action);
    if (handler.action.sa_handler == SIG_DFL || handler.action.sa_handler == SIG_IGN) continue;
    struct sigaction action = handler.action;  // on faulthandler's stack, in case of a stack overflow
    action.sa_handler = Notice;
    action.sa_flags &= ~(SA_SIGINFO | SA_NODEFER);
    sigaction(handler.signal, &action, nullptr);
  }
}

bool Exists(const std::string& file) { return access(file.c_str(), F_OK) == 0; }

bool RemoveSuffix(std::string& text, std::string_view suffix) {
  if (!EndsWith(text, suffix)) return false;
  text.resize(text.size() - suffix.size());
  return true;
}

// <prefix> of <prefix>/lib/libpython3.10.so.1.0, which may also be written <prefix>/bin/../lib/…; or empty.
std::string PrefixOfLibpython() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&Py_GetVersion), &info) == 0 || info.dli_fname == nullptr)
    return {};
  std::string folder(info.dli_fname);
  folder.resize(std::min(folder.rfind('/'), folder.size()));
  if (!RemoveSuffix(folder, "/bin/../lib") && !RemoveSuffix(folder, "/lib")) return {};
  return folder;
}

// The folder above the first folder on PATH that has a python3, executable or not; or empty.
std::string PrefixOnPath() {
  std::string folder = FolderOnPath("python3", F_OK);
  return RemoveSuffix(folder, "/bin") ? folder : "";
}

// Whether a prefix is a virtual environment: its configuration names the Python that it belongs to.
bool IsVirtual(const std::string& prefix) {
  const std::string configuration = ReadFile(prefix + "/pyvenv.cfg", kMostConfiguration);
  return configuration.rfind("home", 0) == 0 || configuration.find("\nhome") != std::string::npos;
}

// The home of the libpython that is loaded, so that an environment also works without executable files, as
// object storage delivers it. Empty if its standard library is elsewhere, if PYTHONHOME is set, or for a
// virtual environment, whose libpython is that of another prefix: Python then searches by itself.
std::optional<Home> FindHome() {
  if (std::getenv("PYTHONHOME") != nullptr) return std::nullopt;
  const std::string prefix = PrefixOfLibpython();
  const std::string library = prefix + "/lib/python" + build::kPythonMinor;
  if (prefix.empty() || !Exists(library + "/encodings/__init__.py")) return std::nullopt;
  if (const std::string found = PrefixOnPath(); !found.empty() && IsVirtual(found)) return std::nullopt;
  return Home{prefix, prefix + "/bin/python3"};
}

bool UserSiteRequested() { return Variable("ENVPACK_USER_SITE") == "1"; }

// Adds the user site, overriding PYTHONNOUSERSITE and the environment's pyvenv.cfg.
void AddUserSite() {
  auto site = py::module_::import("site");
  site.attr("ENABLE_USER_SITE") = true;
  site.attr("addusersitepackages")(py::none());
}

// Prints an uncaught exception as Python does, and returns Python's exit status.
int StatusOf(py::error_already_set& error) {
  if (!error.matches(PyExc_SystemExit)) {
    error.restore();
    PyErr_Print();
    return 1;
  }
  const py::object code = error.value().attr("code");
  if (code.is_none()) return 0;
  if (py::isinstance<py::int_>(code)) return code.cast<int>();
  py::print(code, py::arg("file") = py::module_::import("sys").attr("stderr"));
  return 1;
}

// Reports an exception as Python does for those that nobody can handle.
template <typename Action>
void Attempt(const char* when, Action action) {
  try {
    action();
  } catch (py::error_already_set& error) {
    error.discard_as_unraisable(when);
  }
}

// Python's own buffers.
void FlushStreams(const char* when) {
  for (const char* stream : {"stdout", "stderr"}) {
    Attempt(when, [&] { py::module_::import("sys").attr(stream).attr("flush")(); });
  }
}

std::vector<py::object> OpenFiles() {
  const py::object type = py::module_::import("_io").attr("_IOBase");
  std::vector<py::object> files;
  for (const py::handle object : py::list(py::module_::import("gc").attr("get_objects")())) {
    if (!PyObject_TypeCheck(object.ptr(), reinterpret_cast<PyTypeObject*>(type.ptr()))) continue;
    files.push_back(py::reinterpret_borrow<py::object>(object));
  }
  return files;
}

// Closes or flushes (`how`) the files that the model writes to: those of Python's own types, or others.
void WriteFiles(const std::vector<py::object>& files, bool of_python, const char* how, const char* when) {
  const py::module_ sys = py::module_::import("sys");
  for (const py::object& file : files) {
    Attempt(when, [&] {
      if (file.is(sys.attr("stdout")) || file.is(sys.attr("stderr"))) return;
      const std::string module = py::str(py::type::handle_of(file).attr("__module__"));
      if ((module == "_io") != of_python || py::bool_(file.attr("closed"))) return;
      if (py::bool_(file.attr("writable")())) file.attr(how)();
    });
  }
}

// At its end, Python joins the threads of pools, which may wait for ever.
void LeaveThreadPoolsRunning() {
  if (const py::object pools = module::FindModule("concurrent.futures.thread")) {
    pools.attr("_threads_queues").attr("clear")();
  }
}

// From Python 3.9 on, pools of processes end theirs in functions that Python calls before it waits for
// threads, and before those of atexit, which wait for the processes.
void EndProcessPools(const char* when) {
  const py::list functions = py::getattr(py::module_::import("threading"), "_threading_atexits", py::list());
  for (size_t left = functions.size(); left > 0; --left) {
    Attempt(when, [&] { functions[left - 1](); });
  }
}

// Functions of atexit wait, too: multiprocessing's for the processes that the model has started.
void LimitShutdown() {
  const auto end = [] {
    std::this_thread::sleep_for(kMostForShutdown);
    Print("'" + instance_name + "' ends although its atexit functions have not returned within " +
          std::to_string(kMostForShutdown.count()) + " s");
    ExitFlushed(0);
  };
  try {
    StartThread("pbstub-exit", end).detach();
  } catch (const std::system_error&) {
    // There is no room for a thread. The functions return, as a rule.
  }
}

void RunExitFunctions() {
  constexpr const char* kWhen = "end of the stub";
  Attempt(kWhen, LeaveThreadPoolsRunning);
  Attempt(kWhen, [] { EndProcessPools(kWhen); });
  Attempt(kWhen, [] { py::module_::import("atexit").attr("_run_exitfuncs")(); });
  FlushStreams(kWhen);
}

[[noreturn]] void ExitForked(int status) {
  RunExitFunctions();
  ExitFlushed(status);
}

}  // namespace

void NameCrashes(const std::string& instance, int crash_output) {
  instance_name = instance;
  output = crash_output;
  notice = "\nenvpack stub: crash in '" + instance + "'. Python traceback:\n";
}

std::optional<abi::Failure> StartInterpreter(bool uses_environment) {
  module::RegisterModule();
  PythonOptions options;
  // Python itself treats every value as true, also "0".
  options.tracebacks = Variable("PYTHONFAULTHANDLER") != "0";
  options.no_user_site = uses_environment && !UserSiteRequested();
  if (uses_environment) options.home = FindHome();
  if (const std::string reason = InitializePython(options); !reason.empty()) {
    return abi::Failure{"Python could not start: " + reason};
  }
  InstallCrashNotice();
  forks::Watch();
  if (uses_environment && UserSiteRequested()) AddUserSite();
  py::module_::import("sys").attr("path").attr("insert")(0, "");
  return std::nullopt;
}

void PrintTracebacksOn(int signal) {
  py::module_::import("faulthandler").attr("register")(signal, py::arg("all_threads") = true);
}

pid_t ForkInterpreter() {
  FlushStreams("a fork of the stub");
  FlushOutput();
  BeforePythonForks();
  const pid_t pid = forks::ForkSuccessor();
  AfterPythonForked(pid);
  return pid;
}

void ShutDownInterpreter() {
  constexpr const char* kWhen = "end of the stub";
  LimitShutdown();
  FlushStreams(kWhen);
  RunExitFunctions();
  Attempt(kWhen, [] {
    // With `_exit`, what files have in their buffers is lost. A gzip.GzipFile is between two of Python's own.
    const std::vector<py::object> files = OpenFiles();
    WriteFiles(files, true, "flush", kWhen);
    WriteFiles(files, false, "close", kWhen);
    WriteFiles(files, true, "flush", kWhen);
  });
}

void ExitIfForked() {
  if (forks::Depth() > 0) ExitForked(0);
}

void ExitIfForked(py::error_already_set& error) {
  if (forks::Depth() > 0) ExitForked(StatusOf(error));
}

}  // namespace envpack::model
