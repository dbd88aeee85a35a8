// Processes the commands of the server, from the first to the last.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "abi/launch.h"
#include "abi/values.h"
#include "abi/wire.h"
#include "model/python_model.h"
#include "two_halves/body.h"

namespace envpack::model {

// Both need a running Python and the GIL. They import the model unless a template has done so, and destroy
// its Python objects.

// Imports the model unless there is one, calls `on_imported`, and lets the model complete its configuration.
abi::AutoCompleteAnswer CompleteConfig(const abi::Launch& launch, std::unique_ptr<PythonModel>& model,
                                       const std::string& config, const std::function<void()>& on_imported);

// Called once, without the GIL, with how the initialization has ended. Returns when the server may send
// requests.
using InitializedHandler = std::function<void(const abi::InitializeAnswer&)>;

// Initializes the model as the assignment says, and processes the commands of the server until it finalizes
// this stub. Returns at once if the model fails to start.
void ServeCommands(const Assignment& assignment, abi::Wire& wire, std::unique_ptr<PythonModel> imported,
                   const InitializedHandler& on_initialized);

}  // namespace envpack::model
