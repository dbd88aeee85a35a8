// Which protocols this stub was built with.
#pragma once

#include <stdexcept>

#include "abi/release.h"

namespace envpack::abi {

// Returns the release. Throws std::invalid_argument if this stub was built without its protocol.
inline Release RequireBuilt(Release release) {
  for (const Release epoch : kBuiltEpochs) {
    if (epoch == EpochOf(release)) return release;
  }
  throw std::invalid_argument("this stub was built without the protocol of Triton " + NameOf(release));
}

}  // namespace envpack::abi
