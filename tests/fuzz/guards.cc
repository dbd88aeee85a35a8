// Inaccessible pages around every mapping of shared memory, so that a read outside the region crashes. The
// linker redirects mmap() and munmap() to these functions (--wrap).
#include <sys/mman.h>

#include <cstddef>
#include <mutex>
#include <set>

namespace {

constexpr std::size_t kPage = 4096;

std::mutex guarded_mutex;
std::set<void*> guarded;

}  // namespace

extern "C" {

void* __real_mmap(void*, std::size_t, int, int, int, off_t);
int __real_munmap(void*, std::size_t);

void* __wrap_mmap(void* wanted, std::size_t size, int protection, int flags, int file, off_t offset) {
  if ((flags & MAP_SHARED) == 0 || file < 0 || wanted != nullptr) {
    return __real_mmap(wanted, size, protection, flags, file, offset);
  }
  const std::size_t whole = (size + kPage - 1) / kPage * kPage;
  void* reserved = __real_mmap(nullptr, whole + 2 * kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (reserved == MAP_FAILED) return reserved;
  void* inside = static_cast<char*>(reserved) + kPage;
  void* mapped = __real_mmap(inside, size, protection, flags | MAP_FIXED, file, offset);
  const std::lock_guard lock(guarded_mutex);
  guarded.insert(mapped);
  return mapped;
}

int __wrap_munmap(void* base, std::size_t size) {
  {
    const std::lock_guard lock(guarded_mutex);
    if (guarded.erase(base) == 0) return __real_munmap(base, size);
  }
  const std::size_t whole = (size + kPage - 1) / kPage * kPage;
  return __real_munmap(static_cast<char*>(base) - kPage, whole + 2 * kPage);
}

}  // extern "C"
