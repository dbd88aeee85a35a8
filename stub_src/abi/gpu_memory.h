// What a Wire needs of a GPU. The server hands out and expects tensors in device memory, which no record can
// carry, only describe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>

namespace envpack::abi {

// Names an allocation of another process: a CUipcMemHandle, or the runtime's cudaIpcMemHandle_t, which is the
// same 64 bytes.
using IpcHandle = std::array<char, 64>;

// The GPU, its driver or its memory cannot be used; the text says which and why.
class GpuFailed : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Bytes on a device that belong to the server: `offset` bytes into the pool that it shares with its stubs, or
// into an allocation of its own.
struct DeviceMemory {
  std::int64_t device = 0;
  std::uint64_t offset = 0;
  bool in_pool = false;
  IpcHandle allocation{};  // outside of the pool
};

// All functions may be called from any thread, and throw GpuFailed.
class GpuMemory {
 public:
  virtual ~GpuMemory() = default;

  // Takes note of the pool that the server shares on a device.
  virtual void AttachPool(std::int64_t device, const IpcHandle& pool) = 0;

  // The address of such memory here. What it points to can be used as long as the pointer lives.
  virtual std::shared_ptr<void> Open(const DeviceMemory& memory) = 0;

  // Copies between any two places, host memory or devices, of which `device` is one, and returns when the
  // bytes are there.
  virtual void Copy(std::int64_t device, void* to, const void* from, std::size_t size) = 0;
};

// For a process that runs no model.
class NoGpu final : public GpuMemory {
 public:
  void AttachPool(std::int64_t, const IpcHandle&) override { Refuse(); }
  std::shared_ptr<void> Open(const DeviceMemory&) override { Refuse(); }
  void Copy(std::int64_t, void*, const void*, std::size_t) override { Refuse(); }

 private:
  [[noreturn]] static void Refuse() { throw GpuFailed("this process does not use a GPU"); }
};

}  // namespace envpack::abi
