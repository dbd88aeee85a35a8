#include "peer_sync.h"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "check.h"

namespace envpack::test {

int TimeoutSeconds() {
  const char* seconds = std::getenv("ENVPACK_TEST_SECONDS");
  return seconds == nullptr ? 60 : std::atoi(seconds);
}

bool Soon(const std::function<bool()>& condition) {
  constexpr int kPause = 10;  // milliseconds
  for (int i = 0; i < TimeoutSeconds() * 1000 / kPause; ++i) {
    if (condition()) return true;
    usleep(kPause * 1000);
  }
  return condition();
}

void InitShared(pthread_mutex_t* mutex) {
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  pthread_mutex_init(mutex, &attributes);
  pthread_mutexattr_destroy(&attributes);
}

void InitShared(pthread_cond_t* condition) {
  pthread_condattr_t attributes;
  pthread_condattr_init(&attributes);
  pthread_condattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  pthread_cond_init(condition, &attributes);
  pthread_condattr_destroy(&attributes);
}

void Copy(void* to, const void* from, std::size_t size) {
  if (size != 0) std::memcpy(to, from, size);
}

timespec In(int milliseconds) {
  timespec when{};
  clock_gettime(CLOCK_REALTIME, &when);
  when.tv_sec += milliseconds / 1000;
  when.tv_nsec += milliseconds % 1000 * 1000000L;
  if (when.tv_nsec >= 1000000000L) {
    ++when.tv_sec;
    when.tv_nsec -= 1000000000L;
  }
  return when;
}

void WaitUntil(const abi::records::Flag* flag, bool value, pthread_mutex_t* mutex,
               pthread_cond_t* condition) {
  const timespec limit = In(TimeoutSeconds() * 1000);
  while (*flag != value) {
    if (pthread_cond_timedwait(condition, mutex, &limit) == ETIMEDOUT) {
      pthread_mutex_unlock(mutex);
      throw Failed("the stub does not acknowledge");
    }
  }
}

}  // namespace envpack::test
