#include "abi/wire.h"

#include <utility>

#include "abi/base_wire.h"

namespace envpack::abi {

namespace {

// `wanted` is one of `kWires`.
template <Release... kWires>
std::unique_ptr<Wire> OpenOneOf(std::integer_sequence<Release, kWires...>, Release wanted,
                                const Launch& launch, Release release, GpuMemory& gpu,
                                std::shared_ptr<Journal> journal) {
  std::unique_ptr<Wire> wire;
  const auto open = [&](Release epoch, auto function) {
    if (epoch == wanted) wire = function(launch, release, gpu, std::move(journal));
  };
  (open(kWires, &OpenEpoch<kWires>), ...);
  return wire;
}

}  // namespace

std::unique_ptr<Wire> OpenWire(const Launch& launch, Release release, GpuMemory& gpu,
                               std::shared_ptr<Journal> journal) {
  return OpenOneOf(BuiltWires(), WireEpochOf(RequireBuilt(release)), launch, release, gpu,
                   std::move(journal));
}

}  // namespace envpack::abi
