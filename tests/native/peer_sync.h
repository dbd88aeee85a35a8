// Locks and waits of the server's side, in shared memory.
#pragma once

#include <pthread.h>
#include <time.h>

#include <cstddef>

#include "abi/records.h"

namespace envpack::test {

// For how long a stub may be silent. One in an emulator, on a machine that was busy and stood still now and
// then, took more than 20 s to complete a configuration.
constexpr int kPatienceSeconds = 60;

void InitShared(pthread_mutex_t* mutex);
void InitShared(pthread_cond_t* condition);

// The time that many milliseconds from now.
timespec In(int milliseconds);

// Waits for the stub to set `flag`, with the mutex held; at most some seconds, so that a silent stub fails a
// test.
void WaitUntil(const abi::records::Flag* flag, bool value, pthread_mutex_t* mutex, pthread_cond_t* condition);

// memcpy for sizes that may be 0, when there may be no address at all.
void Copy(void* to, const void* from, std::size_t size);

}  // namespace envpack::test
