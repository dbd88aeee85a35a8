// The Wire of Triton 24.10.
#pragma once

#include <memory>

#include "abi/launch.h"
#include "abi/wire.h"

namespace envpack::abi::r24_10 {

std::unique_ptr<Wire> OpenWire(const Launch& launch);

}  // namespace envpack::abi::r24_10
