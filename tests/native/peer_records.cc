// Records as the server lays them out and reads them.
#include <cstring>

#include "check.h"
#include "peer.h"
#include "peer_sync.h"

namespace envpack::test {

Handle Peer::MakeString(const std::string& text) {
  const Handle data = Own(text.size());
  std::memcpy(region.At(data), text.data(), text.size());
  const Handle record = Own(sizeof(records::String));
  *region.As<records::String>(record) = {data, text.size()};
  return record;
}

Handle Peer::MakeDict(const std::map<std::string, std::string>& entries) {
  const Handle pairs = Own(entries.size() * sizeof(records::Pair));
  std::size_t at = 0;
  for (const auto& [key, value] : entries) {
    const records::Pair pair{MakeString(key), MakeString(value)};
    std::memcpy(region.At(pairs, at), &pair, sizeof(pair));
    at += sizeof(pair);
  }
  const Handle record = Own(sizeof(records::Dict));
  *region.As<records::Dict>(record) = {static_cast<std::uint32_t>(entries.size()), pairs};
  return record;
}

namespace {

// A Memory record with what follows it.
std::string MemoryOf(const PeerTensor& tensor) {
  records::Memory memory{};
  memory.byte_size = tensor.bytes.size();
  if (tensor.device) {
    memory.memory_type = 2;
    memory.memory_type_id = tensor.device->device;
    memory.use_cuda_shared_pool = tensor.device->in_pool;
    (tensor.device->in_pool ? memory.cuda_pool_offset : memory.gpu_pointer_offset) = tensor.device->offset;
    memory.release_id = tensor.device->release_id;
  }
  const std::string record(reinterpret_cast<const char*>(&memory), sizeof(memory));
  if (!tensor.device) return record + tensor.bytes;
  std::string handle = tensor.device->handle;
  handle.resize(64);
  return record + handle;
}

}  // namespace

Handle Peer::MakeGpuBuffers(const std::vector<PeerTensor>& places, const std::string& error) {
  std::vector<Handle> handles;
  for (const PeerTensor& place : places) {
    const std::string memory = MemoryOf(place);
    handles.push_back(Own(memory.size()));
    std::memcpy(region.At(handles.back()), memory.data(), memory.size());
  }
  const Handle list = Own(handles.size() * sizeof(Handle));
  Copy(region.At(list), handles.data(), handles.size() * sizeof(Handle));
  const Handle buffers = Own(sizeof(records::GpuBuffers));
  *region.As<records::GpuBuffers>(buffers) = {error.empty(), error.empty() ? 0 : MakeString(error), list,
                                              static_cast<std::uint32_t>(handles.size())};
  return buffers;
}

std::string Peer::ReadBuffer(Handle buffers, std::size_t index) {
  const Handle list = region.As<records::GpuBuffers>(buffers)->buffers;
  const Handle memory = *region.As<Handle>(list, index * sizeof(Handle));
  return {region.At(memory, sizeof(records::Memory)), region.As<records::Memory>(memory)->byte_size};
}

Handle Peer::MakeResponse(const PeerResponse& response) {
  records::Response record{};
  std::vector<Handle> outputs;
  for (const PeerTensor& output : response.outputs) outputs.push_back(MakeTensor(output));
  record.outputs_size = static_cast<std::uint32_t>(outputs.size());
  record.is_last_response = true;
  if (response.error) {
    record.has_error = record.is_error_set = true;
    record.error = Own(sizeof(records::Error));
    *region.As<records::Error>(record.error) = {response.code, MakeString(*response.error)};
  }
  const Handle block = Own(sizeof(record) + outputs.size() * sizeof(Handle));
  *region.As<records::Response>(block) = record;
  Copy(region.At(block, sizeof(record)), outputs.data(), outputs.size() * sizeof(Handle));
  return block;
}

Handle Peer::MakeTensor(const PeerTensor& tensor) {
  std::string data = MemoryOf(tensor);
  Handle apart = 0;
  if (tensor.apart) {
    apart = Own(data.size());
    std::memcpy(region.At(apart), data.data(), data.size());
    data.clear();
  }
  const records::Tensor head{apart, tensor.dtype, tensor.dims.size()};
  const records::String name{0x5A5A5A, tensor.name.size()};
  std::string whole(reinterpret_cast<const char*>(&head), sizeof(head));
  for (const std::int64_t dim : tensor.dims) whole.append(reinterpret_cast<const char*>(&dim), sizeof(dim));
  whole.append(reinterpret_cast<const char*>(&name), sizeof(name));
  whole += tensor.name + data;
  const Handle block = Own(whole.size());
  std::memcpy(region.At(block), whole.data(), whole.size());
  return block;
}

Handle Peer::MakeRequest(const PeerRequest& request) {
  records::Request record{};
  record.input_count = static_cast<std::uint32_t>(request.inputs.size());
  record.requested_output_count = static_cast<std::uint32_t>(request.outputs.size());
  record.model_version = 1;
  record.flags = 3;
  record.timeout_us = 1500000;
  record.response_factory_address = request.response_factory;
  record.model_name = MakeString("model");
  record.request_id = MakeString(request.id);
  record.parameters = MakeString(request.parameters);
  record.correlation_id = Own(sizeof(records::CorrelationId));
  *region.As<records::CorrelationId>(record.correlation_id) = {MakeString(""), 77, 0};
  record.trace = Own(sizeof(records::Trace));
  *region.As<records::Trace>(record.trace) = {MakeString(""), 0};
  std::vector<Handle> tail;
  for (const std::string& output : request.outputs) tail.push_back(MakeString(output));
  for (const PeerTensor& input : request.inputs) tail.push_back(MakeTensor(input));
  const Handle block = Own(sizeof(record) + tail.size() * sizeof(Handle));
  *region.As<records::Request>(block) = record;
  Copy(region.At(block, sizeof(record)), tail.data(), tail.size() * sizeof(Handle));
  return block;
}

Handle Peer::MakeBatch(const std::vector<PeerRequest>& requests) {
  std::vector<Handle> handles;
  for (const PeerRequest& request : requests) handles.push_back(MakeRequest(request));
  const Handle batch = Own(sizeof(records::RequestBatch) + handles.size() * sizeof(Handle));
  *region.As<records::RequestBatch>(batch) = {static_cast<std::uint32_t>(handles.size()), 0};
  Copy(region.At(batch, sizeof(records::RequestBatch)), handles.data(), handles.size() * sizeof(Handle));
  return batch;
}

std::string Peer::ReadString(Handle handle) {
  const auto* record = region.As<records::String>(handle);
  return {region.At(record->data), record->length};
}

PeerTensor Peer::ReadTensor(Handle handle) {
  const auto head = *region.As<records::Tensor>(handle);
  PeerTensor tensor{"", head.dtype, std::vector<std::int64_t>(head.dims_count), "", false, std::nullopt};
  std::size_t at = sizeof(head);
  Copy(tensor.dims.data(), region.At(handle, at), head.dims_count * sizeof(std::int64_t));
  at += head.dims_count * sizeof(std::int64_t);
  records::String name;
  std::memcpy(&name, region.At(handle, at), sizeof(name));
  at += sizeof(name);
  tensor.name.assign(region.At(handle, at), name.length);
  at += name.length;
  records::Memory memory;
  CHECK_EQ(head.memory, 0);
  std::memcpy(&memory, region.At(handle, at), sizeof(memory));
  if (memory.memory_type == 2) {
    tensor.device =
        PeerDevice{memory.memory_type_id, 0, false, {region.At(handle, at + sizeof(memory)), 64}, 0};
    tensor.bytes.resize(memory.byte_size);
    return tensor;
  }
  CHECK_EQ(memory.memory_type, 0);
  CHECK_EQ(memory.memory_type_id, 0);
  CHECK_EQ(memory.use_cuda_shared_pool, false);
  CHECK_EQ(memory.release_id, 0u);
  tensor.bytes.assign(region.At(handle, at + sizeof(memory)), memory.byte_size);
  return tensor;
}

PeerResponse Peer::ReadResponse(Handle handle) {
  const auto record = *region.As<records::Response>(handle);
  PeerResponse response;
  CHECK_EQ(record.has_error, record.is_error_set);
  if (record.has_error) {
    const auto* error = region.As<records::Error>(record.error);
    response.error = ReadString(error->message);
    response.code = error->code;
  }
  for (std::uint32_t i = 0; i < record.outputs_size; ++i) {
    const Handle output = *region.As<Handle>(handle, sizeof(record) + i * sizeof(Handle));
    response.outputs.push_back(ReadTensor(output));
  }
  return response;
}

}  // namespace envpack::test
