// Memory on GPUs, through NVIDIA's driver.
//
// The driver is loaded on first use, so the same stub runs on machines without a GPU. The stub uses it and
// not the CUDA runtime, since every machine with a GPU has it, and all frameworks share it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "abi/gpu_memory.h"

namespace envpack::cuda {

using Context = void*;
using Stream = void*;
using Pointer = std::uint64_t;  // CUdeviceptr, which is also a host address under unified addressing

// Uses the primary contexts of the devices, as PyTorch, CuPy and the CUDA runtime do. Creates a context on a
// device only when it is needed. Any thread. Every function throws abi::GpuError.
class Gpu final : public abi::GpuMemory {
 public:
  void AttachPool(std::int64_t device, const abi::IpcHandle& pool) override;
  std::shared_ptr<void> Open(const abi::DeviceMemory& memory) override;
  void Copy(std::int64_t device, void* to, const void* from, std::size_t size) override;

  // The stub's stream on this device, on which a producer of tensors may order its work.
  Stream StreamOf(std::int64_t device);

  // Waits for all work on StreamOf(device).
  void Synchronize(std::int64_t device);

 private:
  using Key = std::pair<std::int64_t, abi::IpcHandle>;
  // The driver may reject opening a handle twice, so each is opened once and its users are counted.
  struct Allocation {
    Pointer base;
    std::size_t users;
  };

  Context ContextOf(std::int64_t device);
  std::shared_ptr<void> OpenAllocation(const abi::DeviceMemory& memory);
  void CloseAllocation(const Key& key) noexcept;

  std::mutex contexts_mutex_;
  std::map<std::int64_t, Context> contexts_;
  std::mutex mutex_;  // guards what follows
  std::map<std::int64_t, Stream> streams_;
  std::map<std::int64_t, Pointer> pools_;
  std::map<Key, Allocation> allocations_;
};

// One per process, like the state of the driver.
Gpu& TheGpu();

}  // namespace envpack::cuda
