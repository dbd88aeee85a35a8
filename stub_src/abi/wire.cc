#include "abi/wire.h"

#include <stdexcept>

#include "abi/built_epochs.h"

namespace envpack::abi {

std::unique_ptr<Wire> OpenWire(const Launch& launch, Release release, GpuMemory& gpu) {
  for (const BuiltEpoch& built : kBuiltEpochs) {
    if (built.epoch == EpochOf(release)) return built.open(launch, release, gpu);
  }
  throw std::invalid_argument("this stub was built without the protocol of Triton " + NameOf(release));
}

}  // namespace envpack::abi
