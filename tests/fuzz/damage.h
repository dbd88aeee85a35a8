// Reads one message, damaged according to one input of the fuzzer.
#pragma once

#include <cstddef>
#include <cstdint>

namespace envpack::fuzz {

enum class Outcome { kRead, kRejected };

// The first byte of the input selects the scenario. Then follow edits: offset, kind and value. An incomplete
// edit at the end is ignored. Semaphores, mutexes and the tree of Boost's allocator are never damaged,
// because the stub trusts them. Throws every exception but CorruptRegion; it is a finding.
Outcome ReadDamaged(const std::uint8_t* input, std::size_t size);

}  // namespace envpack::fuzz
