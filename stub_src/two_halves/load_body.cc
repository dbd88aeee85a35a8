#include "two_halves/load_body.h"

#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>

#include "channel/refusal.h"
#include "two_halves/libpython.h"

// The body, which embed.cc includes in this executable.
extern "C" const char envpack_body_begin[];
extern "C" const char envpack_body_end[];

namespace envpack {

namespace {

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

}  // namespace

int RunBody(const Assignment& assignment) {
  const Body body = LoadBody();
  if (body.entry != nullptr) return body.entry(&assignment);
  std::fprintf(stderr, "envpack stub: %s\n", body.failure.c_str());
  assignment.report.Finish(abi::Failure{channel::StartFailure(body.failure)});
  return 1;
}

// A worker that is started without the template reports why the body cannot be loaded.
int RunTemplate(const TemplateTask& task) {
  const Body body = LoadBody();
  return body.entry != nullptr ? body.entry(&task) : 1;
}

int RunLocal(const LocalTask& task) {
  const Body body = LoadBody();
  if (body.entry != nullptr) return body.entry(&task);
  std::fprintf(stderr, "envpack stub: %s\n", body.failure.c_str());
  return 1;
}

}  // namespace envpack
