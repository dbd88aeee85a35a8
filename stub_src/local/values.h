// The values of a message of the local wire, as bytes. `envpack/local/values.py` has the other side.
//
// The bytes of a tensor begin at a multiple of kAlignment.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "abi/gpu_memory.h"
#include "abi/values.h"
#include "base/packing.h"

namespace envpack::local {

inline constexpr std::size_t kAlignment = 16;

using Owner = std::shared_ptr<const void>;

// Up to the bytes, to write or to read.
template <typename Row, typename Tensor>
void TensorHead(Row& row, Tensor& tensor) {
  row(tensor.name, tensor.dtype, tensor.dims, tensor.byte_size);
  row.Align(kAlignment);
}

// Up to the inputs.
template <typename Row, typename Request>
void RequestHead(Row& row, Request& request) {
  row(request.origin.request, request.origin.response_factory, request.id, request.correlation_id,
      request.model_name, request.model_version, request.flags, request.timeout_us, request.parameters,
      request.trace.context, request.requested_outputs);
}

// Throws GpuError if a tensor on a device cannot be copied.
inline void Pack(Packer& packer, const std::vector<abi::Tensor>& tensors, abi::GpuMemory& gpu) {
  packer(tensors.size());
  for (const abi::Tensor& tensor : tensors) {
    TensorHead(packer, tensor);
    if (tensor.memory_type != abi::MemoryType::kGpu || tensor.byte_size == 0) {
      packer.AddBytes({static_cast<const char*>(tensor.data), tensor.byte_size});
      continue;
    }
    if (tensor.data == nullptr) throw abi::GpuError(tensor.unreachable);
    gpu.Copy(tensor.memory_type_id, packer.AddRoom(tensor.byte_size), tensor.data, tensor.byte_size);
  }
}

// The tensors refer to the bytes of the message, which `owner` keeps.
inline std::vector<abi::Tensor> UnpackTensors(Unpacker& unpacker, const Owner& owner) {
  std::vector<abi::Tensor> tensors;
  for (auto left = unpacker.Next<std::uint64_t>(); left > 0; --left) {
    abi::Tensor& tensor = tensors.emplace_back();
    TensorHead(unpacker, tensor);
    tensor.data = unpacker.Take(tensor.byte_size).data();
    tensor.owner = owner;
  }
  return tensors;
}

template <typename Failed>
void PackFailure(Packer& packer, const Failed* failure) {
  packer(failure != nullptr, failure != nullptr ? std::string_view(failure->text) : std::string_view());
}

inline void Pack(Packer& packer, const abi::Response& response, abi::GpuMemory& gpu) {
  packer(response.error.has_value());
  if (response.error) packer(response.error->code, response.error->message);
  packer(response.parameters);
  if (response.error) return packer(std::uint64_t{0});  // outputs
  Pack(packer, response.outputs, gpu);
}

inline abi::InferResponse UnpackInferResponse(Unpacker& unpacker, const Owner& owner) {
  abi::InferResponse received;
  abi::Response& response = received.response;
  unpacker(received.stream, received.is_last);
  if (unpacker.Next<bool>()) {
    abi::Error& error = response.error.emplace();
    unpacker(error.code, error.message);
  }
  unpacker(response.parameters);
  response.outputs = UnpackTensors(unpacker, owner);
  return received;
}

inline void Pack(Packer& packer, const abi::Request& request, abi::GpuMemory& gpu) {
  RequestHead(packer, request);
  Pack(packer, request.inputs, gpu);
}

inline abi::Request UnpackRequest(Unpacker& unpacker, const Owner& owner) {
  abi::Request request;
  RequestHead(unpacker, request);
  request.inputs = UnpackTensors(unpacker, owner);
  return request;
}

}  // namespace envpack::local
