// Values to records.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <variant>
#include <vector>

#include "abi/bytes.h"
#include "abi/gpu_memory.h"
#include "abi/plain_writer.h"
#include "abi/records.h"
#include "abi/traits.h"
#include "abi/values.h"
#include "shm/region.h"

namespace envpack::abi {

// Writes as the server of an epoch reads.
template <Release kEpoch>
class Writer : public PlainWriter {
 public:
  using PlainWriter::PlainWriter;

  // Each returns the handle of the block made.
  Handle WriteDoubles(const std::vector<double>& values);
  Handle WriteTensor(const Tensor& tensor);
  Handle WriteResponse(const Response& response);
  Handle WriteRequest(const Request& request, bool decoupled);

  // A tensor whose bytes lie in the region already, in a block of their own, which aligns them to eight.
  static Tensor Allocate(shm::Region& region, const Tensor& tensor);

  // Tensors written so far that lie on a GPU: their bytes travel another way.
  const std::vector<Tensor>& device_tensors() const { return device_tensors_; }

 private:
  using T = Traits<kEpoch>;
  using Memory = records::Memory<kEpoch>;

  Handle WriteError(const Error& error);
  records::Request<kEpoch> MakeRecord(const Request& request, bool decoupled);
  static void WriteHead(const shm::Block& block, const Tensor& tensor, Handle memory);
  static std::size_t DimsBytes(const Tensor& tensor) { return tensor.dims.size() * sizeof(std::int64_t); }
  // Where the Memory record of a tensor lies if it is in the tensor's own block.
  static std::size_t MemoryAt(const Tensor& tensor) {
    return sizeof(records::Tensor) + DimsBytes(tensor) + sizeof(records::String) + tensor.name.size();
  }

  std::vector<std::shared_ptr<const void>> sent_as_they_are_;
  std::vector<Tensor> device_tensors_;
};

// A String with its bytes behind it, at `offset`; returns where both end.
inline std::size_t WriteInlineString(const shm::Block& block, std::size_t offset, std::string_view text) {
  WriteUnaligned(block, offset, records::String{0, text.size()});
  const std::size_t at = offset + sizeof(records::String);
  Copy(block.At(at, text.size()), text.data(), text.size());
  return at + text.size();
}

template <Release kEpoch>
Handle Writer<kEpoch>::WriteDoubles(const std::vector<double>& values) {
  Memory memory{};
  memory.byte_size = values.size() * sizeof(double);
  const shm::Block& block = Make(sizeof(memory) + memory.byte_size);
  *block.As<Memory>() = memory;
  Copy(block.At(sizeof(memory), memory.byte_size), values.data(), memory.byte_size);
  return block.handle();
}

template <Release kEpoch>
Handle Writer<kEpoch>::WriteError(const Error& error) {
  const Handle message = WriteString(error.message);
  if constexpr (T::kErrorsHaveCodes) {
    return Put(records::Error{static_cast<std::int32_t>(error.code), message}).handle();
  } else {
    return message;
  }
}

template <Release kEpoch>
void Writer<kEpoch>::WriteHead(const shm::Block& block, const Tensor& tensor, Handle memory) {
  const std::size_t dims_bytes = DimsBytes(tensor);
  *block.As<records::Tensor>() = {memory, static_cast<std::int32_t>(tensor.dtype), tensor.dims.size()};
  Copy(block.At(sizeof(records::Tensor), dims_bytes), tensor.dims.data(), dims_bytes);
  WriteInlineString(block, sizeof(records::Tensor) + dims_bytes, tensor.name);
}

template <Release kEpoch>
Handle Writer<kEpoch>::WriteTensor(const Tensor& tensor) {
  if (tensor.record) {
    sent_as_they_are_.push_back(tensor.record);
    return static_cast<const shm::Block*>(tensor.record.get())->handle();
  }
  const bool on_device = tensor.memory_type == MemoryType::kGpu;
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
    Copy(block.At(memory_at + sizeof(Memory), room), tensor.data, room);
  }
  WriteUnaligned(block, memory_at, memory);
  return block.handle();
}

template <Release kEpoch>
Tensor Writer<kEpoch>::Allocate(shm::Region& region, const Tensor& tensor) {
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

template <Release kEpoch>
Handle Writer<kEpoch>::WriteResponse(const Response& response) {
  records::Response<kEpoch> record{};
  std::vector<Handle> outputs;
  if (response.error) {
    record.has_error = record.is_error_set = true;
    record.error = WriteError(*response.error);
  } else {
    for (const Tensor& output : response.outputs) outputs.push_back(WriteTensor(output));
    if constexpr (T::kHasResponseParameters) record.parameters = WriteString(response.parameters);
  }
  record.outputs_size = static_cast<std::uint32_t>(outputs.size());
  record.is_last_response = true;
  const std::size_t outputs_bytes = outputs.size() * sizeof(Handle);
  const shm::Block& block = Make(sizeof(record) + outputs_bytes);
  *block.As<records::Response<kEpoch>>() = record;
  Copy(block.At(sizeof(record), outputs_bytes), outputs.data(), outputs_bytes);
  return block.handle();
}

template <Release kEpoch>
records::Request<kEpoch> Writer<kEpoch>::MakeRecord(const Request& request, bool decoupled) {
  records::Request<kEpoch> record{};
  record.input_count = static_cast<std::uint32_t>(request.inputs.size());
  record.requested_output_count = static_cast<std::uint32_t>(request.requested_outputs.size());
  record.model_version = request.model_version;
  record.flags = request.flags;
  record.is_decoupled = decoupled;
  record.timeout_us = static_cast<decltype(record.timeout_us)>(request.timeout_us);
  record.preferred_memory_type = static_cast<std::int32_t>(request.preferred_memory.type);
  record.preferred_device_id = request.preferred_memory.device_id;
  if constexpr (T::kHasTraceRecord) {
    record.trace = static_cast<std::uint64_t>(WriteTrace(request.trace));
  } else if constexpr (T::kHasTracePointer) {
    record.trace = request.trace.server_trace;
  }
  if constexpr (T::kHasReleaseFlags) record.release_flags = kReleaseAll;
  if constexpr (T::kStringsApart) {
    record.correlation_id = WriteCorrelationId(request.correlation_id);
    record.model_name = WriteString(request.model_name);
    record.request_id = WriteString(request.id);
    record.parameters = WriteString(request.parameters);
  } else {
    record.correlation_id = std::get<std::uint64_t>(request.correlation_id);
  }
  return record;
}

template <Release kEpoch>
Handle Writer<kEpoch>::WriteRequest(const Request& request, bool decoupled) {
  const auto record = MakeRecord(request, decoupled);
  std::vector<Handle> behind;
  for (const std::string& name : request.requested_outputs) behind.push_back(WriteString(name));
  for (const Tensor& input : request.inputs) behind.push_back(WriteTensor(input));
  const std::size_t behind_bytes = behind.size() * sizeof(Handle);
  const std::string* const texts[] = {&request.model_name, &request.id, &request.parameters};
  std::size_t texts_bytes = 0;
  if constexpr (!T::kStringsApart) {
    for (const std::string* text : texts) texts_bytes += sizeof(records::String) + text->size();
  }
  const shm::Block& block = Make(sizeof(record) + behind_bytes + texts_bytes);
  *block.As<records::Request<kEpoch>>() = record;
  Copy(block.At(sizeof(record), behind_bytes), behind.data(), behind_bytes);
  if constexpr (!T::kStringsApart) {
    std::size_t at = sizeof(record) + behind_bytes;
    for (const std::string* text : texts) at = WriteInlineString(block, at, *text);
  }
  return block.handle();
}

}  // namespace envpack::abi
