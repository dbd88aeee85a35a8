// Converts values to records.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <variant>
#include <vector>

#include "abi/codec.h"
#include "abi/gpu_memory.h"
#include "abi/records.h"
#include "abi/traits.h"
#include "abi/values.h"
#include "shm/region.h"

namespace envpack::abi {

// Writes a String followed by its bytes at `offset`. Returns the end of the bytes.
inline std::size_t WriteInlineString(const shm::Block& block, std::size_t offset, std::string_view text) {
  block.Write(offset, records::String{0, text.size()});
  const std::size_t at = offset + sizeof(records::String);
  shm::CopyBytes(block.At(at, text.size()), text.data(), text.size());
  return at + text.size();
}

// Writes what the server of an epoch reads. Its functions return the handle of the new block.
template <Release kEpoch>
class EpochWriter : public Writer {
 public:
  using Writer::Writer;

  Handle WriteDoubles(const std::vector<double>& values) {
    Memory memory{};
    memory.byte_size = values.size() * sizeof(double);
    const shm::Block& block = Make(sizeof(memory) + memory.byte_size);
    *block.As<Memory>() = memory;
    shm::CopyBytes(block.At(sizeof(memory), memory.byte_size), values.data(), memory.byte_size);
    return block.handle();
  }

  Handle WriteTensor(const Tensor& tensor) {
    if (tensor.record) {
      reused_records_.push_back(tensor.record);
      return static_cast<const shm::Block*>(tensor.record.get())->handle();
    }
    // Without elements it counts as one on the host: 24.10 crashes on such a buffer in an answer to BLS.
    const bool on_device = tensor.memory_type == MemoryType::kGpu && tensor.byte_size != 0;
    const std::size_t room = on_device ? sizeof(IpcHandle) : tensor.byte_size;
    const std::size_t memory_at = MemoryAt(tensor);
    const shm::Block& block = Make(memory_at + sizeof(Memory) + room);
    WriteHead(block, tensor, 0);
    Memory memory{};
    memory.byte_size = tensor.byte_size;
    if (on_device) {
      memory.memory_type = static_cast<std::int32_t>(tensor.memory_type);
      memory.memory_type_id = tensor.memory_type_id;
      device_tensors_.push_back(tensor);
    } else {
      Fill(block.At(memory_at + sizeof(Memory), room), tensor.data, room);
    }
    block.Write(memory_at, memory);
    return block.handle();
  }

  Handle WriteResponse(const Response& response) {
    records::Response<kEpoch> record{};
    std::vector<Handle> outputs;
    if (response.error) {
      record.has_error = record.is_error_set = true;
      record.error = WriteError(*response.error);
    } else {
      for (const Tensor& output : response.outputs) outputs.push_back(WriteTensor(output));
      if constexpr (HasResponseParameters(kEpoch)) record.parameters = WriteString(response.parameters);
    }
    record.outputs_size = static_cast<std::uint32_t>(outputs.size());
    record.is_last_response = true;
    return PutWith(record, outputs).handle();
  }

  Handle WriteRequest(const Request& request, bool decoupled) {
    const auto record = MakeRecord(request, decoupled);
    std::vector<Handle> behind;
    for (const std::string& name : request.requested_outputs) behind.push_back(WriteString(name));
    for (const Tensor& input : request.inputs) behind.push_back(WriteTensor(input));
    const std::string* const texts[] = {&request.model_name, &request.id, &request.parameters};
    std::size_t texts_bytes = 0;
    if constexpr (!HasStringRecords(kEpoch)) {
      for (const std::string* text : texts) texts_bytes += sizeof(records::String) + text->size();
    }
    const shm::Block& block = PutWith(record, behind, texts_bytes);
    if constexpr (!HasStringRecords(kEpoch)) {
      std::size_t at = sizeof(record) + behind.size() * sizeof(Handle);
      for (const std::string* text : texts) at = WriteInlineString(block, at, *text);
    }
    return block.handle();
  }

  // A tensor whose bytes lie in the region, in a separate block, which aligns them to 8 bytes.
  static Tensor Allocate(shm::Region& region, const Tensor& tensor) {
    const shm::RegionLock lock(region);
    auto memory_block = std::make_shared<const shm::Block>(region.Create(sizeof(Memory) + tensor.byte_size));
    Memory memory{};
    memory.byte_size = tensor.byte_size;
    *memory_block->As<Memory>() = memory;
    auto block = std::make_shared<const shm::Block>(region.Create(MemoryAt(tensor)));
    WriteHead(*block, tensor, memory_block->handle());
    Tensor allocated = tensor;
    allocated.data = memory_block->At(sizeof(Memory), tensor.byte_size);
    allocated.owner = std::move(memory_block);
    allocated.record = std::move(block);
    return allocated;
  }

  // The tensors written so far that lie on a GPU. Their bytes are sent separately.
  const std::vector<Tensor>& device_tensors() const { return device_tensors_; }

 private:
  using Memory = records::Memory<kEpoch>;

  Handle WriteError(const Error& error) {
    const Handle message = WriteString(error.message);
    if constexpr (ErrorsHaveCodes(kEpoch)) {
      return Put(records::Error{static_cast<std::int32_t>(error.code), message}).handle();
    } else {
      return message;
    }
  }

  records::Request<kEpoch> MakeRecord(const Request& request, bool decoupled) {
    records::Request<kEpoch> record{};
    record.input_count = static_cast<std::uint32_t>(request.inputs.size());
    record.requested_output_count = static_cast<std::uint32_t>(request.requested_outputs.size());
    record.model_version = request.model_version;
    record.flags = request.flags;
    record.is_decoupled = decoupled;
    using Timeout = decltype(record.timeout_us);  // 32 bits up to 23.11
    record.timeout_us = static_cast<Timeout>(std::min<std::uint64_t>(request.timeout_us, ~Timeout{}));
    record.preferred_memory_type = static_cast<std::int32_t>(request.preferred_memory.type);
    record.preferred_device_id = request.preferred_memory.device_id;
    if constexpr (HasTraceRecord(kEpoch)) {
      record.trace = static_cast<std::uint64_t>(WriteTrace(request.trace));
    } else if constexpr (HasTracePointer(kEpoch)) {
      record.trace = request.trace.server_trace;
    }
    if constexpr (HasReleaseFlags(kEpoch)) record.release_flags = kReleaseAll;
    if constexpr (HasStringRecords(kEpoch)) {
      record.correlation_id = WriteCorrelationId(request.correlation_id);
      record.model_name = WriteString(request.model_name);
      record.request_id = WriteString(request.id);
      record.parameters = WriteString(request.parameters);
    } else {
      record.correlation_id = std::get<std::uint64_t>(request.correlation_id);
    }
    return record;
  }

  static void WriteHead(const shm::Block& block, const Tensor& tensor, Handle memory) {
    const std::size_t dims_bytes = DimsBytes(tensor);
    *block.As<records::Tensor>() = {memory, static_cast<std::int32_t>(tensor.dtype), tensor.dims.size()};
    shm::CopyBytes(block.At(sizeof(records::Tensor), dims_bytes), tensor.dims.data(), dims_bytes);
    WriteInlineString(block, sizeof(records::Tensor) + dims_bytes, tensor.name);
  }

  static std::size_t DimsBytes(const Tensor& tensor) { return tensor.dims.size() * sizeof(std::int64_t); }
  // The offset of a tensor's Memory record if it lies in the tensor's block.
  static std::size_t MemoryAt(const Tensor& tensor) {
    return sizeof(records::Tensor) + DimsBytes(tensor) + sizeof(records::String) + tensor.name.size();
  }

  std::vector<std::shared_ptr<const void>> reused_records_;
  std::vector<Tensor> device_tensors_;
};

}  // namespace envpack::abi
