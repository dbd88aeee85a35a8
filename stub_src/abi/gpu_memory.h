// The GPU operations that a Wire needs: records describe tensors in device memory, without their bytes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>

namespace envpack::abi {

// An allocation of another process: a CUipcMemHandle or cudaIpcMemHandle_t, which are the same 64 bytes.
using IpcHandle = std::array<char, 64>;

// The GPU, its driver or its memory cannot be used. The message says which and why.
struct GpuError : std::runtime_error {
  using runtime_error::runtime_error;
};

// Device memory of the server: `offset` bytes into the pool that stubs share, or into a separate allocation.
struct DeviceMemory {
  std::int64_t device = 0;
  std::uint64_t offset = 0;
  bool in_pool = false;
  IpcHandle allocation{};  // if not in the pool
};

// All functions may be called from any thread, and throw GpuError.
class GpuMemory {
 public:
  virtual ~GpuMemory() = default;

  // Opens the pool that the server shares on a device.
  virtual void AttachPool(std::int64_t device, const IpcHandle& pool) = 0;

  // Maps device memory of the server. The address is valid as long as the pointer lives.
  virtual std::shared_ptr<void> Open(const DeviceMemory& memory) = 0;

  // Copies between host memory and devices, one of which is `device`, and returns when the copy is complete.
  virtual void Copy(std::int64_t device, void* to, const void* from, std::size_t size) = 0;
};

}  // namespace envpack::abi
