// A GPU whose device memory is host memory, so that the wire's part of GPU tensors needs no device.
#pragma once

#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "abi/gpu_memory.h"

namespace envpack::test {

class HostGpu final : public abi::GpuMemory {
 public:
  // Allocations by the first character of their handle, and pools by device.
  std::map<char, std::string> allocations;
  std::map<std::int64_t, std::string> pools;
  // The devices of all copies, in order.
  std::vector<std::int64_t> copies;

  void AttachPool(std::int64_t device, const abi::IpcHandle& pool) override {
    if (allocations.count(pool[0]) == 0) throw abi::GpuError("no such pool");
    pools[device] = std::string(pool.data(), pool.size());
  }
  std::shared_ptr<void> Open(const abi::DeviceMemory& memory) override {
    const char handle = memory.in_pool ? pools.at(memory.device)[0] : memory.allocation[0];
    const auto found = allocations.find(handle);
    if (found == allocations.end()) throw abi::GpuError("no such allocation");
    opened.push_back(memory.device);
    return {found->second.data() + memory.offset, [this](void*) {
              ++closed;
              on_close();
            }};
  }
  void Copy(std::int64_t device, void* to, const void* from, std::size_t size) override {
    copies.push_back(device);
    std::memcpy(to, from, size);
  }

  std::vector<std::int64_t> opened;  // the devices
  int closed = 0;
  std::function<void()> on_close = [] {};
};

}  // namespace envpack::test
