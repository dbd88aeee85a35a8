#include "shm/abandoned.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <climits>
#include <string>
#include <system_error>

namespace envpack::shm {

namespace {

constexpr std::chrono::seconds kLimit(1);

// Positions in glibc's condition, which are the same in all versions: first the position of the next waiter,
// of which the lowest bit is the number of a group, then the first position of the group that is being woken,
// and behind it the words that waiters sleep on.
constexpr std::size_t kFirstOfGroup = 8;
constexpr std::size_t kWords = 16;
// Larger than the position of any waiter, with the lowest bit, the number of the group, clear.
constexpr std::uint64_t kBehindAll = UINT64_MAX / 2 - 1;

}  // namespace

LockAnyway::LockAnyway(pthread_mutex_t* mutex, const char* what) {
  try {
    lock_.emplace(mutex, kLimit);
  } catch (const std::system_error& error) {
    if (error.code().value() != ETIMEDOUT) throw;
    throw Abandoned(std::string(what) + " stays locked");
  }
}

void EndWaits(pthread_cond_t* condition) {
  char* bytes = reinterpret_cast<char*>(condition);
  reinterpret_cast<std::atomic<std::uint64_t>*>(bytes + kFirstOfGroup)->store(kBehindAll);
  for (std::size_t at = kWords; at < sizeof(*condition); at += sizeof(std::uint32_t)) {
    syscall(SYS_futex, bytes + at, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
  }
}

std::uint64_t WaitsBegun(const pthread_cond_t& condition) {
  const auto* position = reinterpret_cast<const volatile std::uint64_t*>(&condition);
  return *position >> 1;
}

}  // namespace envpack::shm
