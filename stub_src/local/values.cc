#include "local/values.h"

#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace envpack::local {

namespace {

std::uint64_t Bits(std::int64_t value) { return static_cast<std::uint64_t>(value); }

void PackBytes(Packer& packer, const abi::Tensor& tensor, abi::GpuMemory& gpu) {
  packer.Align(kAlignment);
  if (tensor.memory_type != abi::MemoryType::kGpu || tensor.byte_size == 0) {
    return packer.AddBytes({static_cast<const char*>(tensor.data), tensor.byte_size});
  }
  if (tensor.data == nullptr) throw abi::GpuError(tensor.unreachable);
  gpu.Copy(tensor.memory_type_id, packer.AddRoom(tensor.byte_size), tensor.data, tensor.byte_size);
}

void Pack(Packer& packer, const abi::Tensor& tensor, abi::GpuMemory& gpu) {
  packer.Add(tensor.name);
  packer.Add(Bits(static_cast<std::int64_t>(tensor.dtype)));
  packer.Add(tensor.dims.size());
  for (const std::int64_t size : tensor.dims) packer.Add(Bits(size));
  packer.Add(tensor.byte_size);
  PackBytes(packer, tensor, gpu);
}

void Pack(Packer& packer, const std::vector<abi::Tensor>& tensors, abi::GpuMemory& gpu) {
  packer.Add(tensors.size());
  for (const abi::Tensor& tensor : tensors) Pack(packer, tensor, gpu);
}

abi::Tensor UnpackTensor(Unpacker& unpacker, const Owner& owner) {
  abi::Tensor tensor;
  tensor.name = unpacker.Text();
  tensor.dtype = static_cast<abi::DataType>(unpacker.Number());
  for (std::uint64_t left = unpacker.Number(); left > 0; --left) {
    tensor.dims.push_back(static_cast<std::int64_t>(unpacker.Number()));
  }
  tensor.byte_size = unpacker.Number();
  unpacker.Align(kAlignment);
  tensor.data = unpacker.Take(tensor.byte_size).data();
  tensor.owner = owner;
  return tensor;
}

std::vector<abi::Tensor> UnpackTensors(Unpacker& unpacker, const Owner& owner) {
  std::vector<abi::Tensor> tensors;
  for (std::uint64_t left = unpacker.Number(); left > 0; --left) {
    tensors.push_back(UnpackTensor(unpacker, owner));
  }
  return tensors;
}

// A number, or a text.
void Pack(Packer& packer, const abi::CorrelationId& id) {
  const auto* number = std::get_if<std::uint64_t>(&id);
  packer.Add(std::uint64_t{number == nullptr});
  number != nullptr ? packer.Add(*number) : packer.Add(std::get<std::string>(id));
}

abi::CorrelationId UnpackCorrelationId(Unpacker& unpacker) {
  if (unpacker.Number() == 0) return unpacker.Number();
  return unpacker.Text();
}

}  // namespace

void Pack(Packer& packer, const std::optional<abi::Failure>& failure) {
  packer.Add(std::uint64_t{failure.has_value()});
  packer.Add(failure ? failure->text : std::string_view());
}

void Pack(Packer& packer, const abi::Response& response, abi::GpuMemory& gpu) {
  packer.Add(std::uint64_t{response.error.has_value()});
  if (response.error) {
    packer.Add(Bits(static_cast<std::int64_t>(response.error->code)));
    packer.Add(response.error->message);
  }
  packer.Add(response.parameters);
  if (response.error) return packer.Add(std::uint64_t{0});  // outputs
  Pack(packer, response.outputs, gpu);
}

abi::Response UnpackResponse(Unpacker& unpacker, const Owner& owner) {
  abi::Response response;
  if (unpacker.Number() != 0) {
    const auto code = static_cast<abi::ErrorCode>(unpacker.Number());
    response.error = abi::Error{unpacker.Text(), code};
  }
  response.parameters = unpacker.Text();
  response.outputs = UnpackTensors(unpacker, owner);
  return response;
}

void Pack(Packer& packer, const abi::Request& request, abi::GpuMemory& gpu) {
  packer.Add(Bits(request.origin.request));
  packer.Add(Bits(request.origin.response_factory));
  packer.Add(request.id);
  Pack(packer, request.correlation_id);
  packer.Add(request.model_name);
  packer.Add(Bits(request.model_version));
  packer.Add(std::uint64_t{request.flags});
  packer.Add(request.timeout_us);
  packer.Add(request.parameters);
  packer.Add(request.trace.context);
  packer.Add(request.requested_outputs.size());
  for (const std::string& name : request.requested_outputs) packer.Add(name);
  Pack(packer, request.inputs, gpu);
}

abi::Request UnpackRequest(Unpacker& unpacker, const Owner& owner) {
  abi::Request request;
  request.origin.request = static_cast<std::int64_t>(unpacker.Number());
  request.origin.response_factory = static_cast<std::int64_t>(unpacker.Number());
  request.id = unpacker.Text();
  request.correlation_id = UnpackCorrelationId(unpacker);
  request.model_name = unpacker.Text();
  request.model_version = static_cast<std::int64_t>(unpacker.Number());
  request.flags = static_cast<std::uint32_t>(unpacker.Number());
  request.timeout_us = unpacker.Number();
  request.parameters = unpacker.Text();
  request.trace.context = unpacker.Text();
  for (std::uint64_t left = unpacker.Number(); left > 0; --left) {
    request.requested_outputs.insert(unpacker.Text());
  }
  request.inputs = UnpackTensors(unpacker, owner);
  return request;
}

}  // namespace envpack::local
