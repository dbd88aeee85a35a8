#include "abi/wire.h"

#include <stdexcept>
#include <utility>

#include "abi/built_epochs.h"
#include "abi/epoch_wire.h"

namespace envpack::abi {

namespace {

// `wanted` is one of `kWires`.
template <Release... kWires>
std::unique_ptr<Wire> OpenOneOf(std::integer_sequence<Release, kWires...>, Release wanted,
                                const Launch& launch, Release release, GpuMemory& gpu) {
  std::unique_ptr<Wire> wire;
  const auto open = [&](Release epoch, auto function) {
    if (epoch == wanted) wire = function(launch, release, gpu);
  };
  (open(kWires, &OpenEpoch<kWires>), ...);
  return wire;
}

}  // namespace

std::unique_ptr<Wire> OpenWire(const Launch& launch, Release release, GpuMemory& gpu) {
  for (const Release epoch : kBuiltEpochs) {
    if (epoch == EpochOf(release)) return OpenOneOf(BuiltWires(), WireEpochOf(release), launch, release, gpu);
  }
  throw std::invalid_argument("this stub was built without the protocol of Triton " + NameOf(release));
}

}  // namespace envpack::abi
