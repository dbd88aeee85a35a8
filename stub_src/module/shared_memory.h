// c_python_backend_utils.shared_memory: how much of the region is free, for tests that look for leaks.
#pragma once

#include <pybind11/pybind11.h>

#include "abi/wire.h"

namespace envpack::module {

void BindSharedMemory(pybind11::module_& module);

// Sets the module's `shared_memory`. The wire must live as long as the interpreter.
void ExposeSharedMemory(pybind11::module_& module, abi::Wire& wire);

}  // namespace envpack::module
