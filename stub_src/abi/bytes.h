// Reading and writing what lies in a block without regard to alignment.
#pragma once

#include <cstddef>
#include <cstring>

#include "shm/region.h"

namespace envpack::abi {

template <typename Value>
Value ReadUnaligned(const shm::Block& block, std::size_t offset) {
  Value value;
  std::memcpy(&value, block.At(offset, sizeof(value)), sizeof(value));
  return value;
}

template <typename Value>
void WriteUnaligned(const shm::Block& block, std::size_t offset, const Value& value) {
  std::memcpy(block.At(offset, sizeof(value)), &value, sizeof(value));
}

// memcpy for sizes that may be 0, when there may be no address at all, which memcpy must not see.
inline void Copy(void* to, const void* from, std::size_t size) {
  if (size != 0) std::memcpy(to, from, size);
}

}  // namespace envpack::abi
