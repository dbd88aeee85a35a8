// Tensors on GPUs, in 24.10: their bytes do not travel in the region; the server says where it wants them.
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "abi/bytes_24_10.h"
#include "abi/wire_24_10.h"
#include "shm/sync.h"

namespace envpack::abi::r24_10 {

// Silence would block the server's thread for ever, so a stub that cannot use the pool says so.
void Wire24_10::AttachPool(const Message& message) {
  Writer writer(region_);
  const shm::Block block = region_.Load(message.args);
  auto* pool = block.As<CudaMemoryPool>();
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

// A destination is a device buffer, or bytes in the region if the server has chosen the host.
void Wire24_10::FillBuffers(Handle buffers, const std::vector<abi::Tensor>& tensors) {
  const shm::Reading reading(region_);
  const shm::Block block = region_.Load(buffers);
  const auto record = *block.As<GpuBuffers>();
  if (!record.success) throw ServerFailed("Failed to load GPU buffers: " + reader_.ReadString(record.error));
  if (record.buffer_count != tensors.size()) {
    throw ServerFailed("GPU buffers size does not match the provided buffers: " +
                       std::to_string(tensors.size()) + " != " + std::to_string(record.buffer_count));
  }
  const shm::Block list = region_.Load(record.buffers);
  const auto handles = Reader::ReadHandles(list, 0, record.buffer_count);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const abi::Tensor& tensor = tensors[i];
    if (tensor.byte_size == 0) continue;
    if (tensor.data == nullptr) throw GpuFailed(tensor.unreachable);
    const shm::Block buffer = region_.Load(handles[i]);
    const auto memory = ReadUnaligned<Memory>(buffer, 0);
    if (memory.memory_type == static_cast<std::int32_t>(MemoryType::kGpu)) {
      const auto destination = gpu_.Open(ReadDeviceMemory(buffer, 0, memory));
      gpu_.Copy(tensor.memory_type_id, destination.get(), tensor.data, tensor.byte_size);
    } else {
      gpu_.Copy(tensor.memory_type_id, buffer.At(sizeof(Memory), tensor.byte_size), tensor.data,
                tensor.byte_size);
    }
  }
}

// The server asks for the GPU tensors of the last answer, and waits for a dummy whatever happens.
void Wire24_10::LoadGpuBuffers(Handle buffers) {
  const auto tensors = std::move(awaited_);
  awaited_.clear();
  if (const auto failure = Attempt([&] { FillBuffers(buffers, tensors); })) {
    std::fprintf(stderr, "envpack stub: tensors could not be copied to the server's GPU buffers: %s\n",
                 failure->c_str());
  }
  answers_.Push(kDummy);
  current_ = shm::Block();
}

}  // namespace envpack::abi::r24_10
