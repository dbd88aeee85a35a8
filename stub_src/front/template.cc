#include "front/template.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <exception>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "front/template_key.h"
#include "front/worker.h"
#include "warm/order.h"
#include "warm/processes.h"

extern "C" char** environ;

namespace envpack::front {

namespace {

constexpr int kWaiting = 1024;  // fronts that have not been accepted
constexpr int kAttempts = 200;
constexpr std::chrono::milliseconds kPause(5);
constexpr int kForRetirement = 10'000;  // milliseconds

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
  pollfd answer{socket.number(), POLLIN, 0};
  if (poll(&answer, 1, kForRetirement) <= 0) {
    throw std::runtime_error("the template of an earlier load does not answer");
  }
}

Template FindOrMake(const abi::Launch& launch, abi::Release release, bool uses_environment,
                    bool is_new_load) {
  const Address address(TemplateKey(launch, uses_environment));
  for (int i = 0; i < kAttempts; ++i) {
    if (Descriptor listener = Listen(address)) {
      Template made{Connect(address), 0};
      made.child = Spawn(launch, release, uses_environment, listener.number());
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

}  // namespace

std::optional<Template> FindTemplate(const abi::Launch& launch, abi::Release release, bool uses_environment,
                                     bool is_new_load, std::string* reason) {
  try {
    if (!warm::OpenProcess(getpid())) throw std::runtime_error("the kernel has no pidfd_open (Linux 5.3)");
    return FindOrMake(launch, release, uses_environment, is_new_load);
  } catch (const std::exception& error) {
    *reason = error.what();
    return std::nullopt;
  }
}

}  // namespace envpack::front
