// The life of a stub: from the server's first command to its last.
#pragma once

#include "abi/launch.h"
#include "abi/wire.h"

namespace envpack::model {

// Serves the server's commands until it finalizes this stub or the model cannot be started. Python must be
// running; call it with the GIL held. Python objects of the model are gone afterwards.
void Live(const abi::Launch& launch, abi::Wire& wire);

}  // namespace envpack::model
