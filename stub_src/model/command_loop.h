// Processes the commands of the server, from the first to the last.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "abi/launch.h"
#include "abi/values.h"
#include "abi/wire.h"
#include "body.h"
#include "model/python_model.h"

namespace envpack::model {

// Both need a running Python and the GIL. They import the model unless a template has done so, and destroy
// its Python objects.

// Calls `on_imported` when the model is imported, and lets the model complete its configuration.
abi::AutoCompleteAnswer CompleteConfig(const abi::Launch& launch, std::unique_ptr<PythonModel> imported,
                                       const std::string& config, const std::function<void()>& on_imported);

// Initializes the model as the assignment says, reports that, and processes the commands of the server until
// it finalizes this stub. Returns at once if the model fails to start.
void ServeCommands(const Assignment& assignment, abi::Wire& wire, std::unique_ptr<PythonModel> imported);

}  // namespace envpack::model
