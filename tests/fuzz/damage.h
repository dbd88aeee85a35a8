// One damaged message, from one input of the fuzzer.
#pragma once

#include <cstddef>
#include <cstdint>

namespace envpack::fuzz {

enum class Outcome { kRead, kRefused };

// Never damaged are the objects that are waited for (semaphores, mutexes) and the tree of Boost's allocator,
// which only the server and the stub write: both are believed. The first byte chooses the scenario; what
// follows are strokes: where, what kind, and with what. Bytes that make no whole stroke are left over.
// Anything but CorruptRegion that comes out of the reading is a finding, and is thrown.
Outcome ReadDamaged(const std::uint8_t* input, std::size_t size);

}  // namespace envpack::fuzz
