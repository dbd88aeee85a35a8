// A wire without a server: envpack, the *host*, does what a server would, at the other end of a socket.
#pragma once

#include <memory>

#include "abi/gpu_memory.h"
#include "abi/launch.h"
#include "abi/wire.h"

namespace envpack::local {

class LocalWire : public abi::Wire {
 public:
  // What the host runs.
  virtual const abi::Launch& launch() const = 0;
};

// Waits for the host's first message. Throws std::runtime_error if it is another one. From then on one thread
// receives all messages. If the host disappears, it ends this process.
std::unique_ptr<LocalWire> OpenLocalWire(int socket, abi::GpuMemory& gpu);

}  // namespace envpack::local
