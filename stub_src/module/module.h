// c_python_backend_utils, the built-in module that gives models access to the server.
#pragma once

#include <pybind11/pybind11.h>

#include <string>

#include "abi/wire.h"

namespace envpack::module {

inline constexpr const char* kName = "c_python_backend_utils";

// Call it before the interpreter starts.
void RegisterModule();

// Adds the module's names to triton_python_backend_utils, which is part of the server. Call it before the
// model is imported, so that the model can use them at module level.
void CompleteUtilities(pybind11::module_& utilities, const std::string& model_directory);

// Gives the module the connection to the server, which must live as long as the interpreter.
void ConnectModule(abi::Wire& wire);

// Each adds the classes of one file. A class must be added before it is used as a default argument.
void BindErrors(pybind11::module_& module);
void BindTensor(pybind11::module_& module);
void BindResponses(pybind11::module_& module);
void BindRequest(pybind11::module_& module);
void BindLogger(pybind11::module_& module);
void BindMetrics(pybind11::module_& module);

}  // namespace envpack::module
