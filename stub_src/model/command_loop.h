// Processes the commands of the server, from the first to the last.
#pragma once

#include <functional>
#include <string>

#include "abi/launch.h"
#include "abi/values.h"
#include "abi/wire.h"
#include "body.h"

namespace envpack::model {

// Both need a running Python and the GIL. They destroy the Python objects of the model.

// Imports the model, calls `on_imported`, and lets the model complete its configuration.
abi::AutoCompleteAnswer CompleteConfig(const abi::Launch& launch, abi::Wire& wire, const std::string& config,
                                       const std::function<void()>& on_imported);

// Initializes the model as the assignment says, reports that, and processes the commands of the server until
// it finalizes this stub. Returns at once if the model fails to start.
void ServeCommands(const Assignment& assignment, abi::Wire& wire);

}  // namespace envpack::model
