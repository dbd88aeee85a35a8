#include "abi/writer_24_10.h"

#include <utility>
#include <variant>

#include "abi/bytes_24_10.h"
#include "abi/gpu_memory.h"

namespace envpack::abi::r24_10 {

Writer::~Writer() {
  const shm::Hold hold(region_);
  blocks_.clear();
}

const shm::Block& Writer::Make(std::size_t size) {
  blocks_.push_back(region_.Create(size));
  return blocks_.back();
}

const shm::Block& Writer::MakeAligned(std::size_t size) {
  blocks_.push_back(region_.CreateAligned(size));
  return blocks_.back();
}

template <typename Record>
Handle Writer::Put(const Record& record) {
  const shm::Block& block = Make(sizeof(record));
  *block.As<Record>() = record;
  return block.handle();
}

Handle Writer::WriteString(std::string_view text) {
  const shm::Block& data = Make(text.size());
  const Handle data_handle = data.handle();
  Copy(data.At(0, text.size()), text.data(), text.size());
  return Put(String{data_handle, text.size()});
}

Handle Writer::WriteDict(const std::map<std::string, std::string>& dict) {
  std::vector<Pair> pairs;
  for (const auto& [key, value] : dict) pairs.push_back({WriteString(key), WriteString(value)});
  const shm::Block& values = Make(pairs.size() * sizeof(Pair));
  Copy(values.At(0, pairs.size() * sizeof(Pair)), pairs.data(), pairs.size() * sizeof(Pair));
  const Handle values_handle = values.handle();
  return Put(Dict{static_cast<std::uint32_t>(pairs.size()), values_handle});
}

Handle Writer::WriteDoubles(const std::vector<double>& values) {
  Memory memory{};
  memory.byte_size = values.size() * sizeof(double);
  const shm::Block& block = Make(sizeof(memory) + memory.byte_size);
  *block.As<Memory>() = memory;
  Copy(block.At(sizeof(memory), memory.byte_size), values.data(), memory.byte_size);
  return block.handle();
}

Handle Writer::WriteError(const abi::Error& error) {
  return Put(Error{static_cast<std::int32_t>(error.code), WriteString(error.message)});
}

namespace {

std::size_t DimsBytes(const abi::Tensor& tensor) { return tensor.dims.size() * sizeof(std::int64_t); }

// Where the Memory record of a tensor lies if it is in the tensor's own block.
std::size_t MemoryAt(const abi::Tensor& tensor) {
  return sizeof(Tensor) + DimsBytes(tensor) + sizeof(String) + tensor.name.size();
}

void WriteHead(const shm::Block& block, const abi::Tensor& tensor, Handle memory) {
  const std::size_t dims_bytes = DimsBytes(tensor);
  const std::size_t name_at = sizeof(Tensor) + dims_bytes;
  *block.As<Tensor>() = {memory, static_cast<std::int32_t>(tensor.dtype), tensor.dims.size()};
  Copy(block.At(sizeof(Tensor), dims_bytes), tensor.dims.data(), dims_bytes);
  WriteUnaligned(block, name_at, String{0, tensor.name.size()});
  Copy(block.At(name_at + sizeof(String), tensor.name.size()), tensor.name.data(), tensor.name.size());
}

}  // namespace

Handle Writer::WriteTensor(const abi::Tensor& tensor) {
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

abi::Tensor Writer::Allocate(shm::Region& region, const abi::Tensor& tensor) {
  auto memory_block = std::make_shared<const shm::Block>(region.Create(sizeof(Memory) + tensor.byte_size));
  Memory memory{};
  memory.byte_size = tensor.byte_size;
  *memory_block->As<Memory>() = memory;
  auto block = std::make_shared<const shm::Block>(region.Create(MemoryAt(tensor)));
  WriteHead(*block, tensor, memory_block->handle());
  abi::Tensor allocated = tensor;
  allocated.data = memory_block->At(sizeof(Memory), tensor.byte_size);
  allocated.owner = std::move(memory_block);
  allocated.record = std::move(block);
  return allocated;
}

Handle Writer::WriteResponse(const abi::Response& response) {
  Response record{};
  std::vector<Handle> outputs;
  if (response.error) {
    record.has_error = record.is_error_set = true;
    record.error = WriteError(*response.error);
  } else {
    for (const abi::Tensor& output : response.outputs) outputs.push_back(WriteTensor(output));
  }
  record.outputs_size = static_cast<std::uint32_t>(outputs.size());
  record.is_last_response = true;
  const std::size_t outputs_bytes = outputs.size() * sizeof(Handle);
  const shm::Block& block = Make(sizeof(Response) + outputs_bytes);
  *block.As<Response>() = record;
  Copy(block.At(sizeof(Response), outputs_bytes), outputs.data(), outputs_bytes);
  return block.handle();
}

Handle Writer::WriteCorrelationId(const abi::CorrelationId& id) {
  CorrelationId record{};
  const auto* text = std::get_if<std::string>(&id);
  record.text = WriteString(text != nullptr ? *text : "");
  if (text != nullptr) {
    record.type = kCorrelationIdIsText;
  } else {
    record.number = std::get<std::uint64_t>(id);
  }
  return Put(record);
}

Handle Writer::WriteTrace(const abi::Trace& trace) {
  return Put(Trace{WriteString(trace.context), trace.server_trace});
}

Handle Writer::WriteRequest(const abi::Request& request, bool decoupled) {
  Request record{};
  record.model_version = request.model_version;
  record.flags = request.flags;
  record.is_decoupled = decoupled;
  record.timeout_us = request.timeout_us;
  record.preferred_memory_type = static_cast<std::int32_t>(request.preferred_memory.type);
  record.preferred_device_id = request.preferred_memory.device_id;
  record.trace = WriteTrace(request.trace);
  record.release_flags = kReleaseAll;
  record.correlation_id = WriteCorrelationId(request.correlation_id);
  record.model_name = WriteString(request.model_name);
  record.request_id = WriteString(request.id);
  record.parameters = WriteString(request.parameters);
  record.requested_output_count = static_cast<std::uint32_t>(request.requested_outputs.size());
  record.input_count = static_cast<std::uint32_t>(request.inputs.size());
  std::vector<Handle> behind;
  for (const std::string& name : request.requested_outputs) behind.push_back(WriteString(name));
  for (const abi::Tensor& input : request.inputs) behind.push_back(WriteTensor(input));
  const std::size_t behind_bytes = behind.size() * sizeof(Handle);
  const shm::Block& block = Make(sizeof(record) + behind_bytes);
  *block.As<Request>() = record;
  Copy(block.At(sizeof(record), behind_bytes), behind.data(), behind_bytes);
  return block.handle();
}

}  // namespace envpack::abi::r24_10
