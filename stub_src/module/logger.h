// pb_utils.Logger.
#pragma once

#include <pybind11/pybind11.h>

#include <string>

#include "abi/values.h"
#include "channel/log_forwarder.h"

namespace envpack::module {

// Python's logger is made of static functions, so the place where lines go is one per process. The sink must
// outlive its use; set it with the GIL held.
void SetLogSink(channel::LogSink& sink);

// Writes a line as Python's logger does, with the file and line of the Python code that is running.
void Log(const std::string& message, abi::LogLevel level);

void BindLogger(pybind11::module_& module);

}  // namespace envpack::module
