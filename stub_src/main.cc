// The stub executable. It does not depend on libpython, so the server's test run, errors in the command line
// and the report of a missing libpython work wherever the file lies.
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <iterator>
#include <optional>
#include <string>

#include "abi/built_epochs.h"
#include "abi/launch.h"
#include "abi/server_release.h"
#include "abi/wire.h"
#include "body.h"
#include "build_info.h"
#include "channel/refusal.h"
#include "libpython.h"

// The body, which embed.cc includes in this executable.
extern "C" const char envpack_body_begin[];
extern "C" const char envpack_body_end[];

namespace envpack {

namespace {

// Ctrl-C in the server's terminal, or the stop of a container, signals the whole process group; the server
// ends the stub with a command. Not SIG_IGN, which programs started by the model would inherit.
void IgnoreSignals() {
  struct sigaction action{};
  action.sa_handler = [](int) {};
  action.sa_flags = SA_RESTART;  // the libraries of models do not expect that a call is interrupted
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

bool WriteAll(int descriptor, const char* data, std::size_t size) {
  while (size > 0) {
    const ssize_t written = write(descriptor, data, size);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    data += written;
    size -= static_cast<std::size_t>(written);
  }
  return true;
}

struct Body {
  BodyEntry entry = nullptr;
  std::string failure;
};

// Loads the body from memory: a separate file could get lost, and /tmp may be mounted noexec.
Body LoadBody() {
  if (std::string failure = LoadLibpython(); !failure.empty()) return {nullptr, failure};
  const int descriptor = memfd_create("triton_python_backend_stub", MFD_CLOEXEC);
  const auto size = static_cast<std::size_t>(envpack_body_end - envpack_body_begin);
  if (descriptor < 0 || !WriteAll(descriptor, envpack_body_begin, size)) {
    return {nullptr, std::string("the stub cannot write its body to memory: ") + std::strerror(errno)};
  }
  void* library = dlopen(("/proc/self/fd/" + std::to_string(descriptor)).c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return {nullptr, std::string("the stub cannot load its body: ") + dlerror()};
  close(descriptor);
  return {reinterpret_cast<BodyEntry>(dlsym(library, kBodyEntry)), ""};
}

int PrintVersion() {
  std::printf(
      "triton_python_backend_stub of envpack %s for Python %s (%s), Triton %s, NumPy 1 and 2; built with "
      "%s\n",
      build::kVersion, build::kPythonMinor, build::kLibpython, build::kReleases, build::kCompiler);
  return 0;
}

int RunBody(int argc, const char* const* argv, const abi::Launch& launch, abi::Release release) {
  const Body body = LoadBody();
  if (body.entry == nullptr) return channel::RefuseLaunch(launch, release, body.failure);
  return body.entry(argc, argv, release);
}

int Run(int argc, const char* const* argv) {
  const abi::Launch launch = abi::ParseLaunch(argc, argv);
  const abi::Release only = std::size(abi::kBuiltEpochs) == 1 ? abi::kBuiltEpochs[0] : 0;
  abi::Release release = 0;
  try {
    release = abi::FindServerRelease(launch, argv[0], only);
  } catch (const abi::ReleaseError& error) {
    const std::optional<abi::Release> server = abi::ReportedRelease(launch);
    if (!server) throw;
    return channel::RefuseLaunch(launch, *server, error.what());
  }
  return RunBody(argc, argv, launch, release);
}

}  // namespace

}  // namespace envpack

int main(int argc, char** argv) {
  using namespace envpack;
  if (argc == 1) return abi::kDryRunStatus;
  if (argc == 2 && std::strcmp(argv[1], "--version") == 0) return PrintVersion();
  IgnoreSignals();
  try {
    return Run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "envpack stub: %s\n", error.what());
    return 1;
  }
}
