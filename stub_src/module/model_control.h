// pb_utils.load_model, unload_model and is_model_ready.
#pragma once

#include <pybind11/pybind11.h>

namespace envpack::module {

void BindModelControl(pybind11::module_& module);

}  // namespace envpack::module
