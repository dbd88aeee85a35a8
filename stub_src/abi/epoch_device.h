// Tensors on GPUs: their bytes do not travel in the region; the server says where it wants them.
#pragma once

#include <cstdio>
#include <string>
#include <utility>

#include "abi/attempt.h"
#include "abi/bytes.h"
#include "abi/epoch_wire.h"
#include "shm/sync.h"

namespace envpack::abi {

// Silence would block the server's thread for ever, so a stub that cannot use the pool says so.
template <Release kEpoch>
void EpochWire<kEpoch>::AttachPool(const records::Message& message) {
  PlainWriter writer(region_);
  const shm::Block block = region_.Load(message.args);
  auto* pool = block.As<records::CudaMemoryPool>();
  IpcHandle handle;
  Copy(handle.data(), pool->cuda_handle, handle.size());
  if (const auto failure = Attempt([&] { gpu_.AttachPool(pool->device_id, handle); })) {
    pool->error = writer.WriteString(*failure);
    pool->has_error = pool->is_error_set = true;
  }
  const shm::Block mutex = region_.Load(message.response_mutex);
  const shm::Block condition = region_.Load(message.response_cond);
  shm::Lock lock(mutex.As<pthread_mutex_t>());
  pool->waiting_on_stub = true;
  shm::Notify(condition.As<pthread_cond_t>());
  while (pool->waiting_on_stub) lock.Wait(condition.As<pthread_cond_t>());
}

// Handles of the Memory records where the server wants the bytes. Throws ServerFailed.
template <Release kEpoch>
std::vector<Handle> EpochWire<kEpoch>::ReadBuffers(Handle buffers) {
  const shm::Block block = region_.Load(buffers);
  if constexpr (T::kHasBufferRecord) {
    const auto record = *block.As<records::GpuBuffers>();
    if (!record.success) {
      throw ServerFailed("Failed to load GPU buffers: " + reader_.ReadString(record.error));
    }
    return Reader<kEpoch>::ReadHandles(region_.Load(record.buffers), 0, record.buffer_count);
  } else {
    return Reader<kEpoch>::ReadHandles(block, sizeof(std::uint64_t), *block.As<std::uint64_t>());
  }
}

// The same for a request of the model.
template <Release kEpoch>
std::vector<Handle> EpochWire<kEpoch>::ReadBatchBuffers(const records::RequestBatch<kEpoch>& batch) {
  if constexpr (T::kHasBufferRecord) {
    return ReadBuffers(batch.gpu_buffers);
  } else {
    return Reader<kEpoch>::ReadHandles(region_.Load(batch.gpu_buffers), 0, batch.gpu_buffers_count);
  }
}

// A destination is a device buffer, or bytes in the region if the server has chosen the host.
template <Release kEpoch>
void EpochWire<kEpoch>::FillBuffers(const std::vector<Handle>& buffers, const std::vector<Tensor>& tensors) {
  using Memory = records::Memory<kEpoch>;
  const shm::Reading reading(region_);
  if (buffers.size() != tensors.size()) {
    throw ServerFailed("GPU buffers size does not match the provided buffers: " +
                       std::to_string(tensors.size()) + " != " + std::to_string(buffers.size()));
  }
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const Tensor& tensor = tensors[i];
    if (tensor.byte_size == 0) continue;
    if (tensor.data == nullptr) throw GpuFailed(tensor.unreachable);
    const shm::Block buffer = region_.Load(buffers[i]);
    const auto memory = ReadUnaligned<Memory>(buffer, 0);
    if (memory.memory_type == static_cast<std::int32_t>(MemoryType::kGpu)) {
      const auto destination = gpu_.Open(Reader<kEpoch>::ReadDeviceMemory(buffer, 0));
      gpu_.Copy(tensor.memory_type_id, destination.get(), tensor.data, tensor.byte_size);
    } else {
      gpu_.Copy(tensor.memory_type_id, buffer.At(sizeof(Memory), tensor.byte_size), tensor.data,
                tensor.byte_size);
    }
  }
}

// The server asks for the GPU tensors of the last answer, and waits for a dummy whatever happens.
template <Release kEpoch>
void EpochWire<kEpoch>::LoadGpuBuffers(Handle buffers) {
  const auto tensors = std::move(awaited_);
  awaited_.clear();
  if (const auto failure = Attempt([&] { FillBuffers(ReadBuffers(buffers), tensors); })) {
    std::fprintf(stderr, "envpack stub: tensors could not be copied to the server's GPU buffers: %s\n",
                 failure->c_str());
  }
  answers_.Push(records::kDummy);
  ForgetCommand();
}

}  // namespace envpack::abi
