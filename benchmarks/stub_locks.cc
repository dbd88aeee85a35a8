// A library to preload, which counts how often a stub locks a mutex, for stub_locks.py. It adds to the eight
// bytes of the file that ENVPACK_LOCK_COUNT names, since the stub is ended with SIGKILL.
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace {

using LockFunction = int (*)(pthread_mutex_t*);

std::uint64_t in_other_programs;

std::uint64_t* Counter() {
  const char* file = std::getenv("ENVPACK_LOCK_COUNT");
  if (file == nullptr || std::strcmp(program_invocation_short_name, "triton_python_backend_stub") != 0) {
    return &in_other_programs;
  }
  const int descriptor = open(file, O_RDWR | O_CLOEXEC);
  void* shared = mmap(nullptr, sizeof(std::uint64_t), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  close(descriptor);
  if (shared == MAP_FAILED) std::abort();
  return static_cast<std::uint64_t*>(shared);
}

}  // namespace

extern "C" int pthread_mutex_lock(pthread_mutex_t* mutex) noexcept {
  static std::uint64_t* const counter = Counter();
  static const auto real = reinterpret_cast<LockFunction>(dlsym(RTLD_NEXT, "pthread_mutex_lock"));
  __atomic_add_fetch(counter, 1, __ATOMIC_RELAXED);
  return real(mutex);
}
