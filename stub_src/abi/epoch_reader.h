// Converts records to values.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "abi/codec.h"
#include "abi/gpu_memory.h"
#include "abi/records.h"
#include "abi/traits.h"
#include "abi/values.h"
#include "base/forks.h"
#include "shm/queue.h"
#include "shm/region.h"

namespace envpack::abi {

// Reads what the server of an epoch has written. Throws shm::CorruptRegion for an invalid record. Tensors
// keep the blocks with their bytes alive, so they must not outlive the constructor's arguments.
template <Release kEpoch>
class EpochReader : public Reader {
 public:
  // `released`: the queue for device buffers that are no longer used. `device_buffers` counts the others.
  EpochReader(shm::Region& region, GpuMemory& gpu, shm::Queue& released,
              std::atomic<std::int32_t>& device_buffers)
      : Reader(region), gpu_(gpu), released_(released), device_buffers_(device_buffers) {}

  Tensor ReadTensor(Handle handle) const {
    std::shared_ptr<const shm::Block> block = std::make_shared<const shm::Block>(region_.Load(handle));
    const auto record = *block->As<records::Tensor>();
    Tensor tensor;
    tensor.dtype = static_cast<DataType>(record.dtype);
    const std::size_t dims_bytes = CheckedProduct(record.dims_count, sizeof(std::int64_t));
    const char* dims = block->At(sizeof(record), dims_bytes);
    tensor.dims.resize(record.dims_count);
    shm::CopyBytes(tensor.dims.data(), dims, dims_bytes);
    std::size_t offset = sizeof(record) + dims_bytes;
    tensor.name = ReadInlineString(*block, offset);
    if (record.memory == 0) {
      AttachMemory(tensor, block, offset);
    } else {
      AttachMemory(tensor, std::make_shared<const shm::Block>(region_.Load(record.memory)), 0);
    }
    if (tensor.memory_type != MemoryType::kGpu) tensor.record = std::move(block);
    return tensor;
  }

  Request ReadRequest(Handle handle) const {
    std::shared_ptr<const shm::Block> block = std::make_shared<const shm::Block>(region_.Load(handle));
    const auto record = *block->As<records::Request<kEpoch>>();
    Request request;
    request.model_version = record.model_version;
    request.flags = record.flags;
    request.timeout_us = record.timeout_us;
    if constexpr (HasTraceRecord(kEpoch)) {
      request.trace = ReadTrace(static_cast<Handle>(record.trace));
    } else if constexpr (HasTracePointer(kEpoch)) {
      request.trace.server_trace = record.trace;
    }
    std::size_t offset = sizeof(record);
    const auto names = ReadHandles(*block, offset, record.requested_output_count);
    for (const Handle name : names) request.requested_outputs.insert(ReadString(name));
    offset += names.size() * sizeof(Handle);
    const auto inputs = ReadHandles(*block, offset, record.input_count);
    for (const Handle input : inputs) request.inputs.push_back(ReadTensor(input));
    ReadTexts(record, *block, offset + inputs.size() * sizeof(Handle), request);
    request.origin = {record.address, record.response_factory_address, std::move(block)};
    return request;
  }

  std::vector<Request> ReadRequests(Handle batch) const {
    const shm::Block block = region_.Load(batch);
    const auto record = *block.As<records::RequestBatch<kEpoch>>();
    std::vector<Request> requests;
    for (const Handle handle : ReadHandles(block, sizeof(record), record.batch_size)) {
      requests.push_back(ReadRequest(handle));
    }
    return requests;
  }

  InferResponse ReadInferResponse(Handle handle) const {
    const shm::ReadBudget budget(region_);
    const shm::Block block = region_.Load(handle);
    const auto record = *block.As<records::Response<kEpoch>>();
    InferResponse answer;
    answer.is_last = record.is_last_response;
    // Up to 25.03 the server leaves the stream id in an error's record uninitialised.
    if (ErrorsHaveStreamId(kEpoch) || !record.has_error) answer.stream = record.stream_id;
    if (record.has_error) {
      answer.response.error =
          record.is_error_set ? ReadError(record.error) : Error{"Failed to retrieve the response error."};
      return answer;
    }
    if constexpr (HasResponseParameters(kEpoch)) answer.response.parameters = ReadString(record.parameters);
    for (const Handle output : ReadHandles(block, sizeof(record), record.outputs_size)) {
      answer.response.outputs.push_back(ReadTensor(output));
    }
    return answer;
  }

  // The location of a GPU tensor's bytes according to the Memory record at `offset`.
  static DeviceMemory ReadDeviceMemory(const shm::Block& block, std::size_t offset) {
    const auto memory = block.Read<Memory>(offset);
    DeviceMemory place;
    place.device = memory.memory_type_id;
    place.offset = memory.gpu_pointer_offset;
    if constexpr (HasPoolOffsets(kEpoch)) {
      place.in_pool = memory.use_cuda_shared_pool;
      if (place.in_pool) place.offset = memory.cuda_pool_offset;
    }
    if (!place.in_pool) place.allocation = block.Read<IpcHandle>(offset + sizeof(Memory));
    return place;
  }

 private:
  using Memory = records::Memory<kEpoch>;

  // Makes the tensor refer to the data of the Memory record at `offset`, and keep `block` alive.
  void AttachMemory(Tensor& tensor, std::shared_ptr<const shm::Block> block, std::size_t offset) const {
    const auto memory = block->Read<Memory>(offset);
    tensor.memory_type = static_cast<MemoryType>(memory.memory_type);
    tensor.memory_type_id = memory.memory_type_id;
    tensor.byte_size = memory.byte_size;
    if (tensor.memory_type != MemoryType::kGpu) {
      tensor.data = block->At(offset + sizeof(Memory), memory.byte_size);
      tensor.owner = std::move(block);
    } else if (memory.byte_size != 0) {
      AttachDeviceMemory(tensor, ReadDeviceMemory(*block, offset), memory.release_id);
    }
  }

  // The server gets the buffer `release_id` back, unless that is 0, when its last user is gone.
  void AttachDeviceMemory(Tensor& tensor, const DeviceMemory& memory, std::uint64_t release_id) const {
    const shm::RegionPause pause;  // the driver may take its time
    std::shared_ptr<void> address;
    try {
      address = gpu_.Open(memory);
    } catch (const GpuError& error) {
      tensor.unreachable = error.what();
    }
    tensor.data = address.get();
    ++device_buffers_;
    tensor.owner = std::shared_ptr<const void>(nullptr, [this, release_id, address = std::move(address),
                                                         owner = forks::OwnerProcess()](auto) mutable {
      address.reset();
      if (!owner.IsThisProcess()) return;
      // In a corrupt region that fails. The server frees all buffers when this process ends.
      if (release_id != 0) Attempt([&] { released_.Push(static_cast<std::int64_t>(release_id)); });
      --device_buffers_;
    });
  }

  // The strings of a request lie in separate blocks, or one after the other after the handles.
  void ReadTexts(const records::Request<kEpoch>& record, [[maybe_unused]] const shm::Block& block,
                 [[maybe_unused]] std::size_t behind_inputs, Request& request) const {
    if constexpr (HasStringRecords(kEpoch)) {
      request.correlation_id = ReadCorrelationId(record.correlation_id);
      request.model_name = ReadString(record.model_name);
      request.id = ReadString(record.request_id);
      request.parameters = ReadString(record.parameters);
    } else {
      request.correlation_id = record.correlation_id;
      request.model_name = ReadInlineString(block, behind_inputs);
      request.id = ReadInlineString(block, behind_inputs);
      request.parameters = ReadInlineString(block, behind_inputs);
    }
  }

  Error ReadError(Handle handle) const {
    if constexpr (ErrorsHaveCodes(kEpoch)) {
      const shm::Block block = region_.Load(handle);
      const auto record = *block.As<records::Error>();
      return {ReadString(record.message), static_cast<ErrorCode>(record.code)};
    } else {
      return {ReadString(handle)};
    }
  }

  GpuMemory& gpu_;
  shm::Queue& released_;
  std::atomic<std::int32_t>& device_buffers_;
};

}  // namespace envpack::abi
