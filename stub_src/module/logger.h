// pb_utils.Logger.
#pragma once

#include <pybind11/pybind11.h>

#include "channel/log_forwarder.h"

namespace envpack::module {

// Python's logger is made of static functions, so the place where lines go is one per process. The sink must
// outlive its use; set it with the GIL held.
void SetLogSink(channel::LogSink& sink);

void BindLogger(pybind11::module_& module);

}  // namespace envpack::module
