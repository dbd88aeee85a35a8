// Loads the half of the stub that embeds Python.
#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <string>
#include <variant>

#include "base/descriptor.h"
#include "base/files.h"
#include "base/output.h"
#include "channel/refusal.h"
#include "two_halves/body.h"
#include "two_halves/build_info.h"

// The body, which embed.cc includes in this executable.
extern "C" const char envpack_body_begin[];
extern "C" const char envpack_body_end[];

namespace envpack {

namespace {

bool TryLoad(const std::string& path) { return dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL) != nullptr; }

// Loads libpython with its symbols visible to extension modules. Searches where the loader does
// (LD_LIBRARY_PATH begins with <environment>/lib), then beside the first python3 on PATH. Returns an empty
// string, or an error message.
std::string LoadLibpython() {
  const std::string name(build::kLibpython);
  if (TryLoad(name)) return {};
  std::string reason = dlerror();
  // From the first python3 on PATH the interpreter will derive its prefix.
  const std::string folder = FolderOnPath("python3", X_OK);
  if (!folder.empty()) {
    if (TryLoad(folder + "/../lib/" + name)) return {};
    reason += "; ";
    reason += dlerror();
  }
  return "this stub needs " + name + " (Python " + build::kPythonMinor +
         "), which could not be loaded: " + reason +
         ". The model's execution environment must contain Python " + build::kPythonMinor +
         " with a shared libpython, or build the stub for the environment's Python.";
}

// What has been read of the executable need not stay in memory, since the file has it.
void ForgetPages(const char* begin, const char* end) {
  const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  const std::uintptr_t first = (reinterpret_cast<std::uintptr_t>(begin) + page - 1) / page * page;
  const std::uintptr_t last = reinterpret_cast<std::uintptr_t>(end) / page * page;
  if (first < last) madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
}

struct Body {
  BodyEntry entry = nullptr;
  std::string failure;
};

// Loads the body from memory: a separate file could get lost, and /tmp may be mounted noexec.
Body LoadBody() {
  if (std::string failure = LoadLibpython(); !failure.empty()) return {nullptr, failure};
  Descriptor file;
  const auto size = static_cast<std::size_t>(envpack_body_end - envpack_body_begin);
  const auto write = [&] {
    constexpr char kCannot[] = "the stub cannot write its body to memory";
    file = MakeMemoryFile("triton_python_backend_stub", kCannot);
    WriteAt(file.number(), {envpack_body_begin, size}, 0, kCannot);
  };
  if (const auto failure = abi::Attempt(write)) return {nullptr, failure->text};
  ForgetPages(envpack_body_begin, envpack_body_end);
  void* library = dlopen(("/proc/self/fd/" + std::to_string(file.number())).c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return {nullptr, std::string("the stub cannot load its body: ") + dlerror()};
  return {reinterpret_cast<BodyEntry>(dlsym(library, kBodyEntry)), ""};
}

}  // namespace

// A worker that is started without the template reports why the body cannot be loaded.
int RunBody(const Task& task) {
  const Body body = LoadBody();
  if (body.entry != nullptr) return body.entry(task);
  if (std::holds_alternative<const TemplateTask*>(task)) return 1;
  Print(body.failure);
  if (const auto* assignment = std::get_if<const Assignment*>(&task)) {
    (*assignment)->report->Finish(abi::Failure{channel::StartFailure(body.failure)});
  }
  return 1;
}

}  // namespace envpack
