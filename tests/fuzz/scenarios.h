// What the stub reads from its region, each with a server that has written it as it should be.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "abi/gpu_memory.h"
#include "abi/launch.h"
#include "abi/reader.h"
#include "abi/wire.h"
#include "peer.h"
#include "shm/queue.h"
#include "shm/region.h"

namespace envpack::fuzz {

// The release whose messages are damaged.
inline constexpr abi::Release kRelease = 2410;

using test::Handle;

// Where every place on a device is some memory of this process.
class SomeGpu final : public abi::GpuMemory {
 public:
  void AttachPool(std::int64_t, const abi::IpcHandle&) override {}
  std::shared_ptr<void> Open(const abi::DeviceMemory&) override;
  void Copy(std::int64_t, void* to, const void* from, std::size_t size) override;
};

// The two sides of one region.
struct Stage {
  Stage();

  std::unique_ptr<abi::Wire> OpenWire();

  test::Peer peer;
  shm::Region region;
  abi::Launch launch;
  shm::Queue released;
  SomeGpu gpu;
  abi::Reader<kRelease> reader;
  Handle last;  // a message that ends every conversation
};

// Bytes of the region that may be damaged.
struct Part {
  Handle handle;
  std::ptrdiff_t from;  // of the record; the count lies in front of it
  std::size_t size;
};

struct Scenario {
  const char* name;
  // Writes the message; the handle, if `read` needs one.
  Handle (*write)(Stage&);
  // Reads the message, and all that its values point to.
  void (*read)(Stage&, Handle);
  // Empty for all blocks that `write` has made.
  std::vector<Part> (*parts)(Stage&) = nullptr;
};

extern const std::vector<Scenario> kScenarios;

}  // namespace envpack::fuzz
