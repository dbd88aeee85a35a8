// The entry point of libFuzzer.
#include <cstddef>
#include <cstdint>

#include "damage.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  envpack::fuzz::ReadDamaged(data, size);
  return 0;
}
