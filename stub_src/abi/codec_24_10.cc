#include "abi/codec_24_10.h"

#include <cstring>
#include <limits>
#include <memory>
#include <utility>

namespace envpack::abi::r24_10 {

namespace {

// Reads a value whose place in the block is not aligned.
template <typename Value>
Value ReadUnaligned(const shm::Block& block, std::size_t offset) {
  Value value;
  std::memcpy(&value, block.At(offset, sizeof(value)), sizeof(value));
  return value;
}

template <typename Value>
void WriteUnaligned(const shm::Block& block, std::size_t offset, const Value& value) {
  std::memcpy(block.At(offset, sizeof(value)), &value, sizeof(value));
}

// memcpy for sizes that may be 0, when there may be no address at all, which memcpy must not see.
void Copy(void* to, const void* from, std::size_t size) {
  if (size != 0) std::memcpy(to, from, size);
}

std::size_t CheckedProduct(std::uint64_t count, std::size_t size) {
  if (count > std::numeric_limits<std::size_t>::max() / 2 / size) {
    throw shm::CorruptRegion("a record claims " + std::to_string(count) + " entries");
  }
  return static_cast<std::size_t>(count) * size;
}

std::vector<Handle> ReadHandles(const shm::Block& block, std::size_t offset, std::size_t count) {
  const std::size_t bytes = CheckedProduct(count, sizeof(Handle));
  const char* first = block.At(offset, bytes);
  std::vector<Handle> handles(count);
  Copy(handles.data(), first, bytes);
  return handles;
}

// Points the tensor to the data of a Memory record at `offset`, and has it keep `block` alive.
void AttachMemory(abi::Tensor& tensor, shm::Block block, std::size_t offset) {
  const auto memory = ReadUnaligned<Memory>(block, offset);
  tensor.memory_type = static_cast<MemoryType>(memory.memory_type);
  tensor.memory_type_id = memory.memory_type_id;
  tensor.byte_size = memory.byte_size;
  if (tensor.memory_type != MemoryType::kGpu) {
    tensor.data = block.At(offset + sizeof(Memory), memory.byte_size);
  }
  tensor.owner = std::make_shared<const shm::Block>(std::move(block));
}

abi::CorrelationId ReadCorrelationId(shm::Region& region, Handle handle) {
  const shm::Block block = region.Load(handle);
  const auto* record = block.As<CorrelationId>();
  if (record->type == kCorrelationIdIsText) return ReadString(region, record->text);
  return record->number;
}

std::string ReadTraceContext(shm::Region& region, Handle handle) {
  if (handle == 0) return {};
  const shm::Block block = region.Load(handle);
  return ReadString(region, block.As<Trace>()->context);
}

}  // namespace

std::string ReadString(shm::Region& region, Handle handle) {
  const shm::Block block = region.Load(handle);
  const auto* record = block.As<String>();
  const shm::Block data = region.Load(record->data);
  return {data.At(0, record->length), record->length};
}

std::map<std::string, std::string> ReadDict(shm::Region& region, Handle handle) {
  const shm::Block block = region.Load(handle);
  const auto* record = block.As<Dict>();
  const shm::Block pairs = region.Load(record->values);
  std::map<std::string, std::string> dict;
  for (std::uint32_t i = 0; i < record->length; ++i) {
    const auto* pair = pairs.As<Pair>(i * sizeof(Pair));
    dict.emplace(ReadString(region, pair->key), ReadString(region, pair->value));
  }
  return dict;
}

abi::Tensor ReadTensor(shm::Region& region, Handle handle) {
  shm::Block block = region.Load(handle);
  const auto record = *block.As<Tensor>();
  abi::Tensor tensor;
  tensor.dtype = static_cast<DataType>(record.dtype);
  const std::size_t dims_bytes = CheckedProduct(record.dims_count, sizeof(std::int64_t));
  const char* dims = block.At(sizeof(Tensor), dims_bytes);
  tensor.dims.resize(record.dims_count);
  Copy(tensor.dims.data(), dims, dims_bytes);

  std::size_t offset = sizeof(Tensor) + dims_bytes;
  const auto name = ReadUnaligned<String>(block, offset);
  offset += sizeof(String);
  tensor.name.assign(block.At(offset, name.length), name.length);
  offset += name.length;

  if (record.memory == 0) {
    AttachMemory(tensor, std::move(block), offset);
  } else {
    AttachMemory(tensor, region.Load(record.memory), 0);
  }
  return tensor;
}

abi::Request ReadRequest(shm::Region& region, Handle handle) {
  const auto shared = std::make_shared<const shm::Block>(region.Load(handle));
  const shm::Block& block = *shared;
  const auto* record = block.As<Request>();
  abi::Request request;
  request.origin = {record->address, record->response_factory_address, shared};
  request.id = ReadString(region, record->request_id);
  request.correlation_id = ReadCorrelationId(region, record->correlation_id);
  request.model_name = ReadString(region, record->model_name);
  request.model_version = record->model_version;
  request.flags = record->flags;
  request.timeout_us = record->timeout_us;
  request.parameters = ReadString(region, record->parameters);
  request.trace_context = ReadTraceContext(region, record->trace);
  const auto names = ReadHandles(block, sizeof(Request), record->requested_output_count);
  for (const Handle name : names) request.requested_outputs.insert(ReadString(region, name));
  const std::size_t behind_names = sizeof(Request) + names.size() * sizeof(Handle);
  for (const Handle input : ReadHandles(block, behind_names, record->input_count)) {
    request.inputs.push_back(ReadTensor(region, input));
  }
  return request;
}

std::vector<abi::Request> ReadRequests(shm::Region& region, Handle batch) {
  const shm::Block block = region.Load(batch);
  std::vector<abi::Request> requests;
  for (const Handle handle : ReadHandles(block, sizeof(RequestBatch), block.As<RequestBatch>()->batch_size)) {
    requests.push_back(ReadRequest(region, handle));
  }
  return requests;
}

const shm::Block& Writer::Make(std::size_t size) {
  blocks_.push_back(region_.Create(size));
  return blocks_.back();
}

const shm::Block& Writer::MakeAligned(std::size_t size) {
  blocks_.push_back(region_.CreateAligned(size));
  return blocks_.back();
}

Handle Writer::WriteString(std::string_view text) {
  const shm::Block& data = Make(text.size());
  const Handle data_handle = data.handle();
  Copy(data.At(0, text.size()), text.data(), text.size());
  const shm::Block& block = Make(sizeof(String));
  *block.As<String>() = {data_handle, text.size()};
  return block.handle();
}

Handle Writer::WriteDict(const std::map<std::string, std::string>& dict) {
  std::vector<Pair> pairs;
  for (const auto& [key, value] : dict) pairs.push_back({WriteString(key), WriteString(value)});
  const shm::Block& values = Make(pairs.size() * sizeof(Pair));
  Copy(values.At(0, pairs.size() * sizeof(Pair)), pairs.data(), pairs.size() * sizeof(Pair));
  const Handle values_handle = values.handle();
  const shm::Block& block = Make(sizeof(Dict));
  *block.As<Dict>() = {static_cast<std::uint32_t>(pairs.size()), values_handle};
  return block.handle();
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
  const Handle message = WriteString(error.message);
  const shm::Block& block = Make(sizeof(Error));
  *block.As<Error>() = {static_cast<std::int32_t>(error.code), message};
  return block.handle();
}

Handle Writer::WriteTensor(const abi::Tensor& tensor) {
  const std::size_t dims_bytes = tensor.dims.size() * sizeof(std::int64_t);
  const std::size_t name_at = sizeof(Tensor) + dims_bytes;
  const std::size_t memory_at = name_at + sizeof(String) + tensor.name.size();
  const shm::Block& block = Make(memory_at + sizeof(Memory) + tensor.byte_size);
  *block.As<Tensor>() = {0, static_cast<std::int32_t>(tensor.dtype), tensor.dims.size()};
  Copy(block.At(sizeof(Tensor), dims_bytes), tensor.dims.data(), dims_bytes);
  WriteUnaligned(block, name_at, String{0, tensor.name.size()});
  Copy(block.At(name_at + sizeof(String), tensor.name.size()), tensor.name.data(), tensor.name.size());
  Memory memory{};
  memory.byte_size = tensor.byte_size;
  WriteUnaligned(block, memory_at, memory);
  Copy(block.At(memory_at + sizeof(Memory), tensor.byte_size), tensor.data, tensor.byte_size);
  return block.handle();
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

}  // namespace envpack::abi::r24_10
