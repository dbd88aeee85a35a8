// The values of a message of the local wire, as bytes. `envpack/local/values.py` has the other side.
//
// The bytes of a tensor begin at a multiple of kAlignment.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "abi/gpu_memory.h"
#include "abi/values.h"
#include "base/packing.h"

namespace envpack::local {

inline constexpr std::size_t kAlignment = 16;

void Pack(Packer& packer, const std::optional<abi::Failure>& failure);

// Throws GpuError if a tensor on a device cannot be copied.
void Pack(Packer& packer, const abi::Response& response, abi::GpuMemory& gpu);
void Pack(Packer& packer, const abi::Request& request, abi::GpuMemory& gpu);

// The tensors refer to the bytes of the message, which `owner` keeps.
using Owner = std::shared_ptr<const void>;
abi::Request UnpackRequest(Unpacker& unpacker, const Owner& owner);
abi::InferResponse UnpackInferResponse(Unpacker& unpacker, const Owner& owner);

}  // namespace envpack::local
