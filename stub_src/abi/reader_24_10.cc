#include "abi/reader_24_10.h"

#include <cstring>
#include <limits>
#include <utility>

#include "abi/bytes_24_10.h"

namespace envpack::abi::r24_10 {

namespace {

std::size_t CheckedProduct(std::uint64_t count, std::size_t size) {
  if (count > std::numeric_limits<std::size_t>::max() / 2 / size) {
    throw shm::CorruptRegion("a record claims " + std::to_string(count) + " entries");
  }
  return static_cast<std::size_t>(count) * size;
}

// A device buffer of the server, which may have it back when the last user of its bytes has gone.
class Lease {
 public:
  Lease(std::shared_ptr<void> memory, std::uint64_t release_id, shm::Queue& released)
      : memory_(std::move(memory)), release_id_(release_id), released_(released) {}
  ~Lease() {
    memory_.reset();
    if (release_id_ == 0 || !maker_.IsThisProcess()) return;
    try {
      released_.Push(static_cast<std::int64_t>(release_id_));
    } catch (const std::exception&) {
      // The region is beyond repair, and the server takes all buffers back when this process ends.
    }
  }
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;

 private:
  std::shared_ptr<void> memory_;
  std::uint64_t release_id_;
  shm::Queue& released_;
  forks::Maker maker_;
};

}  // namespace

DeviceMemory ReadDeviceMemory(const shm::Block& block, std::size_t offset, const Memory& memory) {
  DeviceMemory place;
  place.device = memory.memory_type_id;
  place.in_pool = memory.use_cuda_shared_pool;
  place.offset = place.in_pool ? memory.cuda_pool_offset : memory.gpu_pointer_offset;
  if (!place.in_pool) place.allocation = ReadUnaligned<IpcHandle>(block, offset + sizeof(Memory));
  return place;
}

std::vector<Handle> Reader::ReadHandles(const shm::Block& block, std::size_t offset, std::size_t count) {
  const std::size_t bytes = CheckedProduct(count, sizeof(Handle));
  const char* first = block.At(offset, bytes);
  std::vector<Handle> handles(count);
  Copy(handles.data(), first, bytes);
  return handles;
}

std::string Reader::ReadString(Handle handle) const {
  const shm::Block block = region_.Load(handle);
  const auto record = *block.As<String>();
  const shm::Block data = region_.Load(record.data);
  return {data.At(0, record.length), record.length};
}

std::map<std::string, std::string> Reader::ReadDict(Handle handle) const {
  const shm::Block block = region_.Load(handle);
  const auto record = *block.As<Dict>();
  const shm::Block pairs = region_.Load(record.values);
  std::map<std::string, std::string> dict;
  for (std::uint32_t i = 0; i < record.length; ++i) {
    const auto pair = *pairs.As<Pair>(i * sizeof(Pair));
    dict.emplace(ReadString(pair.key), ReadString(pair.value));
  }
  return dict;
}

void Reader::AttachDeviceMemory(abi::Tensor& tensor, const DeviceMemory& memory,
                                std::uint64_t release_id) const {
  std::shared_ptr<void> address;
  try {
    address = gpu_.Open(memory);
  } catch (const GpuFailed& error) {
    tensor.unreachable = error.what();
  }
  tensor.data = address.get();
  tensor.owner = std::make_shared<Lease>(std::move(address), release_id, released_);
}

// Points the tensor to the data of a Memory record at `offset`, and has it keep `block` alive.
void Reader::AttachMemory(abi::Tensor& tensor, std::shared_ptr<const shm::Block> block,
                          std::size_t offset) const {
  const auto memory = ReadUnaligned<Memory>(*block, offset);
  tensor.memory_type = static_cast<MemoryType>(memory.memory_type);
  tensor.memory_type_id = memory.memory_type_id;
  tensor.byte_size = memory.byte_size;
  if (tensor.memory_type != MemoryType::kGpu) {
    tensor.data = block->At(offset + sizeof(Memory), memory.byte_size);
    tensor.owner = std::move(block);
  } else if (memory.byte_size != 0) {
    AttachDeviceMemory(tensor, ReadDeviceMemory(*block, offset, memory), memory.release_id);
  }
}

abi::Tensor Reader::ReadTensor(Handle handle) const {
  auto block = std::make_shared<const shm::Block>(region_.Load(handle));
  const auto record = *block->As<Tensor>();
  abi::Tensor tensor;
  tensor.dtype = static_cast<DataType>(record.dtype);
  const std::size_t dims_bytes = CheckedProduct(record.dims_count, sizeof(std::int64_t));
  const char* dims = block->At(sizeof(Tensor), dims_bytes);
  tensor.dims.resize(record.dims_count);
  Copy(tensor.dims.data(), dims, dims_bytes);

  std::size_t offset = sizeof(Tensor) + dims_bytes;
  const auto name = ReadUnaligned<String>(*block, offset);
  offset += sizeof(String);
  tensor.name.assign(block->At(offset, name.length), name.length);
  offset += name.length;

  if (record.memory == 0) {
    AttachMemory(tensor, block, offset);
  } else {
    AttachMemory(tensor, std::make_shared<const shm::Block>(region_.Load(record.memory)), 0);
  }
  if (tensor.memory_type != MemoryType::kGpu) tensor.record = std::move(block);
  return tensor;
}

abi::CorrelationId Reader::ReadCorrelationId(Handle handle) const {
  const shm::Block block = region_.Load(handle);
  const auto record = *block.As<CorrelationId>();
  if (record.type == kCorrelationIdIsText) return ReadString(record.text);
  return record.number;
}

abi::Trace Reader::ReadTrace(Handle handle) const {
  if (handle == 0) return {};
  const shm::Block block = region_.Load(handle);
  const auto record = *block.As<Trace>();
  return {ReadString(record.context), record.server_trace};
}

abi::Request Reader::ReadRequest(Handle handle) const {
  auto block = std::make_shared<const shm::Block>(region_.Load(handle));
  const auto record = *block->As<Request>();
  abi::Request request;
  request.id = ReadString(record.request_id);
  request.correlation_id = ReadCorrelationId(record.correlation_id);
  request.model_name = ReadString(record.model_name);
  request.model_version = record.model_version;
  request.flags = record.flags;
  request.timeout_us = record.timeout_us;
  request.parameters = ReadString(record.parameters);
  request.trace = ReadTrace(record.trace);
  const auto names = ReadHandles(*block, sizeof(Request), record.requested_output_count);
  for (const Handle name : names) request.requested_outputs.insert(ReadString(name));
  const std::size_t behind_names = sizeof(Request) + names.size() * sizeof(Handle);
  for (const Handle input : ReadHandles(*block, behind_names, record.input_count)) {
    request.inputs.push_back(ReadTensor(input));
  }
  request.origin = {record.address, record.response_factory_address, std::move(block)};
  return request;
}

std::vector<abi::Request> Reader::ReadRequests(Handle batch) const {
  const shm::Block block = region_.Load(batch);
  std::vector<abi::Request> requests;
  for (const Handle handle : ReadHandles(block, sizeof(RequestBatch), block.As<RequestBatch>()->batch_size)) {
    requests.push_back(ReadRequest(handle));
  }
  return requests;
}

abi::Error Reader::ReadError(Handle handle) const {
  const shm::Block block = region_.Load(handle);
  const auto record = *block.As<Error>();
  return {ReadString(record.message), static_cast<ErrorCode>(record.code)};
}

InferResponse Reader::ReadInferResponse(Handle handle) const {
  const shm::Reading reading(region_);
  const shm::Block block = region_.Load(handle);
  const auto record = *block.As<Response>();
  InferResponse answer;
  answer.is_last = record.is_last_response;
  if (record.has_error) {
    // The server leaves the stream's name in an error's record as it happened to be.
    answer.response.error =
        record.is_error_set ? ReadError(record.error) : abi::Error{"Failed to retrieve the response error."};
    return answer;
  }
  for (const Handle output : ReadHandles(block, sizeof(Response), record.outputs_size)) {
    answer.response.outputs.push_back(ReadTensor(output));
  }
  answer.stream = record.stream_id;
  return answer;
}

}  // namespace envpack::abi::r24_10
