// Mutexes and conditions of the server's side, in shared memory.
#pragma once

#include <pthread.h>
#include <time.h>

#include <cstddef>
#include <functional>

#include "abi/records.h"

namespace envpack::test {

// How long a stub may be silent. In an emulator on a busy machine, a stub took more than 20 s to complete a
// configuration.
// ENVPACK_TEST_SECONDS shortens it for stubs that are broken on purpose.
int TimeoutSeconds();

// Whether `condition` holds, now or within that time.
bool Soon(const std::function<bool()>& condition);

void InitShared(pthread_mutex_t* mutex);
void InitShared(pthread_cond_t* condition);

// The time in `milliseconds` from now.
timespec In(int milliseconds);

// Waits for the stub to set `flag`, with the mutex held and with a timeout.
void WaitUntil(const abi::records::Flag* flag, bool value, pthread_mutex_t* mutex, pthread_cond_t* condition);

// memcpy for sizes that may be 0, for which the addresses may be null.
void Copy(void* to, const void* from, std::size_t size);

}  // namespace envpack::test
