// Processes as descriptors (Linux 5.3 and later): a process id can become another process's, a pidfd cannot.
#pragma once

#include <sys/types.h>

#include <chrono>

#include "base/descriptor.h"

namespace envpack::warm {

// Empty, with errno set, if the process does not exist or the kernel does not support this.
Descriptor OpenProcess(pid_t pid);

// Async-signal-safe. Does nothing if the process has ended.
void SignalProcess(int process, int signal) noexcept;

// Whether the process has ended; waits up to `limit` for that.
bool HasEnded(int process, std::chrono::milliseconds limit = std::chrono::milliseconds(0));

}  // namespace envpack::warm
