// Finding and importing the model's file.
#pragma once

#include <pybind11/pybind11.h>

#include "abi/launch.h"
#include "abi/wire.h"

namespace envpack::model {

// Returns the model's module. Throws module::ModelException if the file is not there or not a .py file.
pybind11::module_ ImportModel(const abi::Launch& launch, abi::Wire& wire);

}  // namespace envpack::model
