// What a model may not use because the server is too old for it.
#pragma once

#include <string>

#include "abi/wire.h"
#include "module/error.h"

namespace envpack::module {

// Throws ModelException unless the server has it; `what` names it, as in "Histograms need".
inline void Require(const abi::Wire& wire, abi::Feature feature, const std::string& what) {
  if (wire.Has(feature)) return;
  throw ModelException(what + " Triton " + abi::NameOf(abi::Since(feature)) +
                       " or later; this server is of " + abi::NameOf(wire.ServerRelease()) + ".");
}

}  // namespace envpack::module
