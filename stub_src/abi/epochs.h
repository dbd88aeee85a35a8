// The epochs' wires by number, without their definitions; each is compiled on its own.
#pragma once

#include <memory>

#include "abi/gpu_memory.h"
#include "abi/launch.h"
#include "abi/release.h"
#include "abi/wire.h"

namespace envpack::abi {

template <Release kEpoch>
std::unique_ptr<Wire> OpenEpoch(const Launch& launch, Release release, GpuMemory& gpu);

using OpenFunction = std::unique_ptr<Wire> (*)(const Launch& launch, Release release, GpuMemory& gpu);

struct BuiltEpoch {
  Release epoch;
  OpenFunction open;
};

}  // namespace envpack::abi
