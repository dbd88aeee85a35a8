// The life of a stub: from the server's first command to its last.
#pragma once

#include <functional>
#include <string>

#include "abi/launch.h"
#include "abi/values.h"
#include "abi/wire.h"

namespace envpack::model {

// Both need a running Python and the GIL. Python objects of the model are gone afterwards.

// Has the model complete its configuration; `imported` is called between the import of the model and that.
abi::AutoCompleteAnswer Complete(const abi::Launch& launch, abi::Wire& wire, const std::string& config,
                                 const std::function<void()>& imported);

// Serves `first` and the commands that follow, until the server finalizes this stub or the model cannot be
// started.
void Live(const abi::Launch& launch, abi::Wire& wire, abi::Command first);

}  // namespace envpack::model
