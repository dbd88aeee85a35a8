// c_python_backend_utils, the built-in module that gives a model everything that talks to the server.
#pragma once

#include <pybind11/pybind11.h>

#include <string>

#include "abi/wire.h"

namespace envpack::module {

inline constexpr const char* kName = "c_python_backend_utils";

// To be called before the interpreter starts.
void RegisterModule();

// Completes triton_python_backend_utils, which the server ships, with our names. Call it before the model is
// imported, so that module-level use of them works.
void CompleteUtilities(pybind11::module_& utilities, abi::Wire& wire, const std::string& model_directory);

}  // namespace envpack::module
