// The messages that the stub reads, each written correctly by a server.
#pragma once

#include <atomic>

#include <cstddef>
#include <memory>
#include <vector>

#include "abi/epoch_reader.h"
#include "abi/gpu_memory.h"
#include "abi/launch.h"
#include "abi/wire.h"
#include "peer.h"
#include "shm/queue.h"
#include "shm/region.h"

namespace envpack::fuzz {

// The release whose messages are damaged, unless a scenario names another.
inline constexpr abi::Release kRelease = 2410;

using test::Handle;

// A GPU whose memory is memory of this process.
class FakeGpu final : public abi::GpuMemory {
 public:
  void AttachPool(std::int64_t, const abi::IpcHandle&) override {}
  std::shared_ptr<void> Open(const abi::DeviceMemory&) override;
  void Copy(std::int64_t, void* to, const void* from, std::size_t size) override;
};

// The two sides of one region.
struct Stage {
  explicit Stage(abi::Release release);

  std::unique_ptr<abi::Wire> OpenWire();

  const abi::Release release;
  test::Peer peer;
  shm::Region region;
  abi::Launch launch;
  shm::Queue released;
  FakeGpu gpu;
  std::atomic<std::int32_t> device_buffers{0};
  abi::EpochReader<kRelease> reader;
  Handle last;  // a message that ends Receive()
};

// Bytes that may be damaged.
struct Part {
  Handle handle;
  std::ptrdiff_t from;  // relative to the record; the reference count precedes it
  std::size_t size;
};

struct Scenario {
  const char* name;
  // Writes the message. Returns its handle, if `read` needs it.
  Handle (*write)(Stage&);
  // Reads the message and all bytes that its values refer to.
  void (*read)(Stage&, Handle);
  // The bytes to damage. Null for all blocks that `write` has created.
  std::vector<Part> (*parts)(Stage&) = nullptr;
  abi::Release release = kRelease;
};

extern const std::vector<Scenario> kScenarios;

}  // namespace envpack::fuzz
