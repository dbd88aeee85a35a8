// Records of 24.10 to values.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "abi/gpu_memory.h"
#include "abi/records_24_10.h"
#include "abi/values.h"
#include "shm/queue.h"
#include "shm/region.h"

namespace envpack::abi::r24_10 {

// The bytes of a GPU tensor, as a Memory record describes them.
DeviceMemory ReadDeviceMemory(const shm::Block& block, std::size_t offset, const Memory& memory);

// Reads what the server has written. Every function throws shm::CorruptRegion if a record is not what it
// should be. Tensors keep the blocks that hold their bytes, so they must not outlive the Reader's arguments.
class Reader {
 public:
  // `released` is the queue by which the server learns that a device buffer is not used any more.
  Reader(shm::Region& region, GpuMemory& gpu, shm::Queue& released)
      : region_(region), gpu_(gpu), released_(released) {}

  std::string ReadString(Handle handle) const;
  std::map<std::string, std::string> ReadDict(Handle handle) const;
  abi::Tensor ReadTensor(Handle handle) const;
  abi::Request ReadRequest(Handle handle) const;
  std::vector<abi::Request> ReadRequests(Handle batch) const;
  InferResponse ReadInferResponse(Handle handle) const;

  // `count` handles that lie at `offset`.
  static std::vector<Handle> ReadHandles(const shm::Block& block, std::size_t offset, std::size_t count);

 private:
  abi::CorrelationId ReadCorrelationId(Handle handle) const;
  abi::Trace ReadTrace(Handle handle) const;
  abi::Error ReadError(Handle handle) const;
  void AttachMemory(abi::Tensor& tensor, std::shared_ptr<const shm::Block> block, std::size_t offset) const;
  void AttachDeviceMemory(abi::Tensor& tensor, const DeviceMemory& memory, std::uint64_t release_id) const;

  shm::Region& region_;
  GpuMemory& gpu_;
  shm::Queue& released_;
};

}  // namespace envpack::abi::r24_10
