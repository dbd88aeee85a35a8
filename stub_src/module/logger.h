// pb_utils.Logger.
#pragma once

#include <pybind11/pybind11.h>

#include <memory>
#include <string>

#include "abi/values.h"
#include "channel/log_forwarder.h"

namespace envpack::module {

// Sets the destination of log lines; null is standard error. Python's logger consists of static functions, so
// there is one destination for the process. Call it with the GIL held.
void SetLogForwarder(std::shared_ptr<channel::LogForwarder> forwarder);

// Writes a log line with the file and line of the running Python code.
void Log(const std::string& message, abi::LogLevel level);

// Logs why a request failed, since the server itself sends that to the client only. ENVPACK_LOG_FAILURES: 0
// for no line, 1 for the whole text with its traceback.
void LogFailure(const std::string& text);

}  // namespace envpack::module
