// Writing and reading records in the server's layout.
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

// A Memory record and what follows it.
std::string Peer::MemoryOf(const PeerTensor& tensor) {
  std::string record(layouts.SizeOf("Memory"), '\0');
  const Fields memory(record.data(), layouts.Of("Memory"));
  memory.Put<std::uint64_t>("byte_size", tensor.bytes.size());
  if (!tensor.device) return record + tensor.bytes;
  memory.Put<std::int32_t>("memory_type", 2);
  memory.Put<std::int64_t>("memory_type_id", tensor.device->device);
  if (tensor.device->in_pool) memory.Put("use_cuda_shared_pool", true);
  memory.Put(tensor.device->in_pool ? "cuda_pool_offset" : "gpu_pointer_offset", tensor.device->offset);
  memory.Put("release_id", tensor.device->release_id);
  std::string handle = tensor.device->handle;
  handle.resize(64);
  return record + handle;
}

// Before 23.06 a 64-bit count and the handles; an error cannot be expressed.
Handle Peer::MakeGpuBuffers(const std::vector<PeerTensor>& places, const std::string& error) {
  std::vector<Handle> handles;
  for (const PeerTensor& place : places) {
    const std::string memory = MemoryOf(place);
    handles.push_back(Own(memory.size()));
    std::memcpy(region.At(handles.back()), memory.data(), memory.size());
  }
  if (layouts.release() < 2306) {
    handles.insert(handles.begin(), static_cast<Handle>(handles.size()));
    const Handle counted = Own(handles.size() * sizeof(Handle));
    Copy(region.At(counted), handles.data(), handles.size() * sizeof(Handle));
    return counted;
  }
  const Handle list = Own(handles.size() * sizeof(Handle));
  Copy(region.At(list), handles.data(), handles.size() * sizeof(Handle));
  const Handle buffers = Own(sizeof(records::GpuBuffers));
  *region.As<records::GpuBuffers>(buffers) = {error.empty(), error.empty() ? 0 : MakeString(error), list,
                                              static_cast<std::uint32_t>(handles.size())};
  return buffers;
}

std::string Peer::ReadBuffer(Handle buffers, std::size_t index) {
  const bool counted = layouts.release() < 2306;
  const Handle list = counted ? buffers : region.As<records::GpuBuffers>(buffers)->buffers;
  const Handle memory = *region.As<Handle>(list, (index + (counted ? 1 : 0)) * sizeof(Handle));
  const Fields record = FieldsOf("Memory", memory);
  return {region.At(memory, record.size()), record.Get<std::uint64_t>("byte_size")};
}

Handle Peer::MakeResponse(const PeerResponse& response) {
  std::vector<Handle> outputs;
  for (const PeerTensor& output : response.outputs) outputs.push_back(MakeTensor(output));
  const Handle block = Make("Response", outputs.size() * sizeof(Handle));
  const Fields record = FieldsOf("Response", block);
  record.Put("outputs_size", static_cast<std::uint32_t>(outputs.size()));
  record.Put("stream_id", response.stream);
  record.Put("is_last_response", response.is_last);
  if (response.error) {
    record.Put("has_error", true);
    record.Put("is_error_set", response.has_reason);
    if (response.has_reason) record.Put("error", MakeError(*response.error, response.code));
  } else if (record.Has("parameters")) {
    record.Put("parameters", MakeString(response.parameters));
  }
  Copy(region.At(block, record.size()), outputs.data(), outputs.size() * sizeof(Handle));
  return block;
}

// Only a text before 23.09.
Handle Peer::MakeError(const std::string& text, std::int32_t code) {
  const Handle message = MakeString(text);
  if (layouts.release() < 2309) return message;
  const Handle error = Own(sizeof(records::Error));
  *region.As<records::Error>(error) = {code, message};
  return error;
}

Handle Peer::MakeTensor(const PeerTensor& tensor) {
  std::string data = MemoryOf(tensor);
  Handle separate = 0;
  if (tensor.separate) {
    separate = Own(data.size());
    std::memcpy(region.At(separate), data.data(), data.size());
    data.clear();
  }
  const records::Tensor head{separate, tensor.dtype, tensor.dims.size()};
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
  std::string texts;
  std::vector<Handle> tail;
  for (const std::string& output : request.outputs) tail.push_back(MakeString(output));
  for (const PeerTensor& input : request.inputs) tail.push_back(MakeTensor(input));
  if (layouts.release() < 2404) {
    for (const std::string& text : {std::string("model"), request.id, request.parameters}) {
      const records::String record{0x5A5A5A, text.size()};
      texts.append(reinterpret_cast<const char*>(&record), sizeof(record)).append(text);
    }
  }
  const Handle block = Make("Request", tail.size() * sizeof(Handle) + texts.size());
  const Fields record = FieldsOf("Request", block);
  record.Put("input_count", static_cast<std::uint32_t>(request.inputs.size()));
  record.Put("requested_output_count", static_cast<std::uint32_t>(request.outputs.size()));
  record.Put<std::int64_t>("model_version", 1);
  record.Put("flags", request.flags);
  if (layouts.release() >= 2312) {
    record.Put("timeout_us", request.timeout);
  } else {
    record.Put("timeout_us", static_cast<std::uint32_t>(request.timeout));
  }
  record.Put("address", request.address);
  record.Put("response_factory_address", request.response_factory);
  PutTexts(record, request);
  Copy(region.At(block, record.size()), tail.data(), tail.size() * sizeof(Handle));
  Copy(region.At(block, record.size() + tail.size() * sizeof(Handle)), texts.data(), texts.size());
  return block;
}

// Strings, ids and traces that lie in separate blocks in later releases.
void Peer::PutTexts(const Fields& record, const PeerRequest& request) {
  if (layouts.release() >= 2403 && request.has_trace) {
    const Handle trace = Own(sizeof(records::Trace));
    *region.As<records::Trace>(trace) = {MakeString(request.trace_context), request.trace};
    record.Put("trace", trace);
  } else if (record.Has("trace")) {
    record.Put("trace", request.has_trace ? request.trace : 0);
  }
  if (layouts.release() < 2404) {
    record.Put("correlation_id", request.correlation_number);
    return;
  }
  const Handle id = Own(sizeof(records::CorrelationId));
  *region.As<records::CorrelationId>(id) = {MakeString(request.correlation_text), request.correlation_number,
                                            request.correlation_text.empty() ? 0 : 1};
  record.Put("correlation_id", id);
  record.Put("model_name", MakeString("model"));
  record.Put("request_id", MakeString(request.id));
  record.Put("parameters", MakeString(request.parameters));
}

Handle Peer::MakeBatch(const std::vector<PeerRequest>& requests) {
  std::vector<Handle> handles;
  for (const PeerRequest& request : requests) handles.push_back(MakeRequest(request));
  const Handle block = Make("RequestBatch", handles.size() * sizeof(Handle));
  const Fields batch = FieldsOf("RequestBatch", block);
  batch.Put("batch_size", static_cast<std::uint32_t>(handles.size()));
  Copy(region.At(block, batch.size()), handles.data(), handles.size() * sizeof(Handle));
  return block;
}

std::string Peer::ReadString(Handle handle) {
  const auto* record = region.As<records::String>(handle);
  return {region.At(record->data), record->length};
}

std::map<std::string, std::string> Peer::ReadDict(Handle handle) {
  const auto* record = region.As<records::Dict>(handle);
  std::map<std::string, std::string> dict;
  for (std::uint32_t i = 0; i < record->length; ++i) {
    const auto* pair = region.As<records::Pair>(record->values, i * sizeof(records::Pair));
    dict.emplace(ReadString(pair->key), ReadString(pair->value));
  }
  return dict;
}

PeerTensor Peer::ReadTensor(Handle handle) {
  const auto head = *region.As<records::Tensor>(handle);
  PeerTensor tensor{"", head.dtype, std::vector<std::int64_t>(head.dims_count), "", false, std::nullopt};
  std::size_t at = sizeof(head);
  Copy(tensor.dims.data(), region.At(handle, at), head.dims_count * sizeof(std::int64_t));
  at += head.dims_count * sizeof(std::int64_t);
  tensor.name = ReadInlineString(handle, &at);
  tensor.separate = head.memory != 0;
  if (tensor.separate) {
    handle = head.memory;
    at = 0;
  }
  const Fields memory = FieldsOf("Memory", handle, at);
  const auto bytes = memory.Get<std::uint64_t>("byte_size");
  const auto type = memory.Get<std::int32_t>("memory_type");
  if (type == 2) {
    tensor.device = PeerDevice{
        memory.Get<std::int64_t>("memory_type_id"), 0, false, {region.At(handle, at + memory.size()), 64}, 0};
    tensor.bytes.resize(bytes);
    return tensor;
  }
  CHECK_EQ(type, 0);
  CHECK_EQ(memory.Get<std::int64_t>("memory_type_id"), 0);
  if (memory.Has("use_cuda_shared_pool")) CHECK_EQ(memory.Get<bool>("use_cuda_shared_pool"), false);
  CHECK_EQ(memory.Get<std::uint64_t>("release_id"), 0u);
  tensor.bytes.assign(region.At(handle, at + memory.size()), bytes);
  return tensor;
}

std::string Peer::ReadInlineString(Handle handle, std::size_t* at) {
  records::String record;
  std::memcpy(&record, region.At(handle, *at), sizeof(record));
  const std::string text(region.At(handle, *at + sizeof(record)), record.length);
  *at += sizeof(record) + record.length;
  return text;
}

PeerResponse Peer::ReadResponse(Handle handle) {
  const Fields record = FieldsOf("Response", handle);
  PeerResponse response;
  response.is_last = record.Get<bool>("is_last_response");
  const bool has_error = record.Get<bool>("has_error");
  CHECK_EQ(has_error, record.Get<bool>("is_error_set"));
  const auto error = record.Get<Handle>("error");
  if (has_error && layouts.release() < 2309) {
    response.error = ReadString(error);
  } else if (has_error) {
    response.error = ReadString(region.As<records::Error>(error)->message);
    response.code = region.As<records::Error>(error)->code;
  } else if (record.Has("parameters")) {
    response.parameters = ReadString(record.Get<Handle>("parameters"));
  }
  for (std::uint32_t i = 0; i < record.Get<std::uint32_t>("outputs_size"); ++i) {
    response.outputs.push_back(ReadTensor(*region.As<Handle>(handle, record.size() + i * sizeof(Handle))));
  }
  return response;
}

void Peer::ReadNumbers(const Fields& record, PeerInferRequest* bls) {
  CHECK_EQ(record.Get<bool>("is_decoupled"), bls->decoupled);
  CHECK_EQ(record.Get<std::int64_t>("address"), 0);
  CHECK_EQ(record.Get<std::int64_t>("response_factory_address"), 0);
  bls->version = record.Get<std::int64_t>("model_version");
  bls->flags = record.Get<std::uint32_t>("flags");
  bls->timeout = layouts.release() >= 2312 ? record.Get<std::uint64_t>("timeout_us")
                                           : record.Get<std::uint32_t>("timeout_us");
  bls->preferred_memory = record.Get<std::int32_t>("preferred_memory_type");
  bls->preferred_device = record.Get<std::int64_t>("preferred_device_id");
  bls->release_flags = record.Has("release_flags") ? record.Get<std::uint32_t>("release_flags") : 1;
  bls->trace = record.Has("trace") ? record.Get<std::uint64_t>("trace") : 0;
  if (layouts.release() >= 2403) {
    const auto* trace = region.As<records::Trace>(static_cast<Handle>(bls->trace));
    bls->trace_context = ReadString(trace->context);
    bls->trace = trace->server_trace;
  }
  if (layouts.release() < 2404) {
    bls->correlation_number = record.Get<std::uint64_t>("correlation_id");
    return;
  }
  const auto* id = region.As<records::CorrelationId>(record.Get<Handle>("correlation_id"));
  bls->correlation_number = id->number;
  bls->correlation_text = ReadString(id->text);
  CHECK_EQ(id->type, bls->correlation_text.empty() ? 0 : 1);
}

PeerInferRequest Peer::ReadInferRequest(Handle request, bool decoupled) {
  const Fields record = FieldsOf("Request", request);
  PeerInferRequest bls{};
  bls.decoupled = decoupled;
  std::size_t at = record.size();
  for (std::uint32_t i = 0; i < record.Get<std::uint32_t>("requested_output_count");
       ++i, at += sizeof(Handle)) {
    bls.outputs.push_back(ReadString(*region.As<Handle>(request, at)));
  }
  for (std::uint32_t i = 0; i < record.Get<std::uint32_t>("input_count"); ++i, at += sizeof(Handle)) {
    bls.inputs.push_back(ReadTensor(*region.As<Handle>(request, at)));
  }
  const bool separate = record.Has("model_name");
  bls.model = separate ? ReadString(record.Get<Handle>("model_name")) : ReadInlineString(request, &at);
  bls.id = separate ? ReadString(record.Get<Handle>("request_id")) : ReadInlineString(request, &at);
  bls.parameters = separate ? ReadString(record.Get<Handle>("parameters")) : ReadInlineString(request, &at);
  ReadNumbers(record, &bls);
  return bls;
}

}  // namespace envpack::test
