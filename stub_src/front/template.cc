#include "front/template.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "base/files.h"
#include "front/worker.h"
#include "warm/order.h"

extern "C" char** environ;

namespace envpack::front {

namespace {

constexpr std::size_t kMostFiles = 4096;
constexpr std::size_t kMostCode = std::size_t{64} << 20;  // bytes of Python files
constexpr std::size_t kMostStat = 4096;

std::string ParentOf(const std::string& path) { return path.substr(0, path.rfind('/')); }

// Changes with each change of a file.
std::string StateOf(const std::string& path) {
  struct stat facts{};
  if (stat(path.c_str(), &facts) != 0) return "none";
  std::string text;
  for (const auto number :
       {static_cast<std::int64_t>(facts.st_dev), static_cast<std::int64_t>(facts.st_ino),
        static_cast<std::int64_t>(facts.st_size), static_cast<std::int64_t>(facts.st_mtim.tv_sec),
        static_cast<std::int64_t>(facts.st_mtim.tv_nsec), static_cast<std::int64_t>(facts.st_ctim.tv_sec),
        static_cast<std::int64_t>(facts.st_ctim.tv_nsec)}) {
    text += std::to_string(number) + " ";
  }
  return text;
}

// Collects facts. Two hashes of 64 bits: files that differ by accident have different keys.
class Facts {
 public:
  void Add(std::string_view name, std::string_view value) {
    text_ += name;
    text_ += ' ';
    text_ += std::to_string(value.size());
    text_ += ' ';
    text_ += value;
    text_ += '\n';
  }

  // The Python files of a folder. Not the other files: models may write some when they are imported.
  void AddCode(const std::string& folder, bool with_folders) {
    std::vector<std::string> names = NamesIn(folder);
    std::sort(names.begin(), names.end());
    for (const std::string& name : names) AddEntry(folder + "/" + name, with_folders);
  }

  std::string Hash() const {
    const std::hash<std::string_view> hash;
    char text[40];
    std::snprintf(text, sizeof(text), "%016zx%016zx", hash(text_), hash(text_ + "again"));
    return text;
  }

 private:
  void AddEntry(const std::string& path, bool with_folders) {
    if (++files_ > kMostFiles) {
      throw std::runtime_error("the model's folder contains more than " + std::to_string(kMostFiles) +
                               " files");
    }
    struct stat state{};
    if (lstat(path.c_str(), &state) == 0 && S_ISDIR(state.st_mode)) {
      if (with_folders && !EndsWith(path, "/__pycache__")) AddCode(path, true);
      return;
    }
    if (!EndsWith(path, ".py")) return;
    const std::string text = ReadFile(path, kMostCode + 1);
    if ((code_ += text.size()) > kMostCode) {
      throw std::runtime_error("the model's folder contains more than 64 MiB of Python files");
    }
    Add(path, text);
  }

  std::string text_;
  std::size_t files_ = 0;
  std::size_t code_ = 0;  // bytes
};

// <environment>/lib is the first folder of LD_LIBRARY_PATH, by the server.
void AddEnvironment(Facts& facts) {
  const std::string folders = Variable("LD_LIBRARY_PATH").value_or("");
  const std::string library = folders.substr(0, folders.find(':'));
  facts.Add("environment", library);
  facts.Add("library", StateOf(library));
  facts.Add("prefix", StateOf(ParentOf(library)));
}

void AddVariables(Facts& facts) {
  std::vector<std::string_view> variables;
  for (char** variable = environ; *variable != nullptr; ++variable) variables.emplace_back(*variable);
  std::sort(variables.begin(), variables.end());
  for (const std::string_view variable : variables) facts.Add("variable", variable);
}

// Process ids are used again: the time of its start tells a process from an earlier one with the same id.
std::string StartOf(std::int64_t pid) {
  const std::string text = ReadFile("/proc/" + std::to_string(pid) + "/stat", kMostStat);
  std::size_t at = text.rfind(')');  // the second field may contain spaces
  for (int field = 2; field < 22 && at != text.npos; ++field) at = text.find(' ', at + 1);
  return at == text.npos ? "" : text.substr(at, text.find(' ', at + 1) - at);
}

// What stubs must agree in to share a template: a hash of model, version, code, environment, variables, user,
// server and stub. Throws std::runtime_error if the model has too many files.
std::string TemplateKey(const abi::Launch& launch, bool uses_environment) {
  Facts facts;
  facts.Add("server", std::to_string(launch.server_pid) + " " + StartOf(launch.server_pid));
  facts.Add("namespace", LinkTarget("/proc/self/ns/pid"));
  facts.Add("user", std::to_string(geteuid()));
  facts.Add("stub", StateOf("/proc/self/exe"));
  facts.Add("backend", launch.backend_directory);
  facts.Add("runtime", launch.runtime_directory);
  facts.Add("runtime code", StateOf(launch.runtime_directory + "/model.py"));
  facts.Add("model", launch.model_file);
  facts.Add("folder", LinkTarget("/proc/self/cwd"));
  const std::string version = ParentOf(launch.model_file);
  facts.AddCode(version, true);
  facts.AddCode(ParentOf(version), false);  // whose folders may contain an environment
  if (uses_environment) AddEnvironment(facts);
  AddVariables(facts);
  return facts.Hash();
}

constexpr int kWaiting = 1024;  // fronts that have not been accepted
constexpr int kAttempts = 200;
constexpr std::chrono::milliseconds kPause(5);
constexpr std::chrono::seconds kForRetirement(10);

// In the abstract namespace: the kernel removes the name with the last descriptor.
struct Address {
  explicit Address(const std::string& key) {
    const std::string name = "envpack-template-" + key;
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path + 1, name.data(), name.size());
    size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }

  sockaddr_un address{};
  socklen_t size;
};

Descriptor MakeSocket() {
  Descriptor socket_(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!socket_) FailBySystem("a socket cannot be created");
  return socket_;
}

// Empty if another process has this address.
Descriptor Listen(const Address& address) {
  Descriptor listener = MakeSocket();
  if (bind(listener.number(), address.get(), address.size) != 0) {
    if (errno == EADDRINUSE) return {};
    FailBySystem("a socket cannot be named");
  }
  if (listen(listener.number(), kWaiting) != 0) FailBySystem("a socket cannot listen");
  return listener;
}

// Empty if nobody listens there.
Descriptor Connect(const Address& address) {
  Descriptor socket = MakeSocket();
  if (connect(socket.number(), address.get(), address.size) != 0) {
    if (errno == ECONNREFUSED) return {};
    FailBySystem("the template cannot be reached");
  }
  if (!warm::IsTrusted(socket.number())) {
    throw std::runtime_error(
        "a process of another user, or of another container, has the template's address");
  }
  return socket;
}

// The template inherits the listening socket. Its command line begins as that of this stub.
pid_t Spawn(const abi::Launch& launch, abi::Release release, bool uses_environment, int listener) {
  const std::array<std::string, 14> texts{program_invocation_name,
                                          launch.model_file,
                                          launch.region,
                                          "0",
                                          std::to_string(launch.region_growth),
                                          std::to_string(launch.server_pid),
                                          launch.backend_directory,
                                          std::to_string(launch.control_handle),
                                          launch.name,
                                          launch.runtime_directory,
                                          kTemplateOption,
                                          std::to_string(listener),
                                          std::to_string(release),
                                          uses_environment ? "1" : "0"};
  std::vector<char*> arguments;
  for (const std::string& text : texts) arguments.push_back(const_cast<char*>(text.c_str()));
  arguments.push_back(nullptr);
  CollectChildren();
  if (fcntl(listener, F_SETFD, 0) != 0) FailBySystem("the template cannot inherit a socket");
  pid_t pid = 0;
  const int code = posix_spawn(&pid, "/proc/self/exe", nullptr, nullptr, arguments.data(), environ);
  if (code != 0) FailBySystem("the template cannot be started", code);
  return pid;
}

// Makes the template of an earlier load accept no further fronts, and waits for that.
void RetireEarlier(const Descriptor& socket) {
  warm::Send(socket.number(), warm::Retire{});
  if (!IsReadable(socket.number(), kForRetirement)) {
    throw std::runtime_error("the template of an earlier load does not answer");
  }
}

}  // namespace

Template FindTemplate(const Assignment& assignment, bool uses_environment) {
  if (!OpenProcess(getpid())) throw std::runtime_error("the kernel has no pidfd_open (Linux 5.3)");
  const Address address(TemplateKey(assignment.launch, uses_environment));
  const bool is_new_load = std::holds_alternative<abi::AutoCompleteCommand>(assignment.command);
  for (int i = 0; i < kAttempts; ++i) {
    if (Descriptor listener = Listen(address)) {
      Template made{Connect(address), 0};
      made.child = Spawn(assignment.launch, assignment.release, uses_environment, listener.number());
      return made;
    }
    if (Descriptor socket = Connect(address)) {
      if (!is_new_load) return {std::move(socket), 0};
      RetireEarlier(socket);
    } else {
      std::this_thread::sleep_for(kPause);  // between bind() and listen(), or about to end
    }
  }
  throw std::runtime_error("the template's address stays in use");
}

}  // namespace envpack::front
