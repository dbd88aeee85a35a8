// Memory on GPUs, by way of the driver.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "abi/gpu_memory.h"
#include "cuda/driver.h"

namespace envpack::cuda {

// Uses the devices' primary contexts, which is what PyTorch, CuPy and the runtime use, and touches no device
// before something on it is needed. Any thread. Every function throws abi::GpuFailed.
class Gpu final : public abi::GpuMemory {
 public:
  void AttachPool(std::int64_t device, const abi::IpcHandle& pool) override;
  std::shared_ptr<void> Open(const abi::DeviceMemory& memory) override;
  void Copy(std::int64_t device, void* to, const void* from, std::size_t size) override;

  // A stream of our own on this device, on which a producer of tensors may order its work.
  Stream StreamOf(std::int64_t device);

  // Waits for everything ordered on StreamOf(device).
  void Synchronize(std::int64_t device);

 private:
  using Key = std::pair<std::int64_t, abi::IpcHandle>;
  // A driver may refuse to open a handle twice, so each is opened once and its users are counted.
  struct Allocation {
    Pointer base;
    std::size_t users;
  };

  Context ContextOf(std::int64_t device);
  std::shared_ptr<void> OpenAllocation(const abi::DeviceMemory& memory);
  void CloseAllocation(const Key& key) noexcept;

  std::mutex mutex_;  // guards what follows
  std::map<std::int64_t, Context> contexts_;
  std::map<std::int64_t, Stream> streams_;
  std::map<std::int64_t, Pointer> pools_;
  std::map<Key, Allocation> allocations_;
};

// One per process, like the driver's own state.
Gpu& TheGpu();

}  // namespace envpack::cuda
