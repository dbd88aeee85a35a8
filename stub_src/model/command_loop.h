// Processes the commands of the server, from the first to the last.
#pragma once

#include <functional>
#include <string>

#include "abi/launch.h"
#include "abi/values.h"
#include "abi/wire.h"

namespace envpack::model {

// Both need a running Python and the GIL. They destroy the Python objects of the model.

// Imports the model, calls `on_imported`, and lets the model complete its configuration.
abi::AutoCompleteAnswer CompleteConfig(const abi::Launch& launch, abi::Wire& wire, const std::string& config,
                                       const std::function<void()>& on_imported);

// Processes `first` and the commands that follow, until the server finalizes this stub or the model fails to
// start.
void ServeCommands(const abi::Launch& launch, abi::Wire& wire, abi::Command first);

}  // namespace envpack::model
