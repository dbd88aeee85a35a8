#include "module/logger.h"

#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "abi/values.h"
#include "module/error.h"
#include "module/module.h"

namespace py = pybind11;

namespace envpack::module {

namespace {

// Guarded by the GIL.
std::shared_ptr<channel::LogSink>& CurrentSink() {
  static std::shared_ptr<channel::LogSink> sink = std::make_shared<channel::StderrLog>();
  return sink;
}

// The running line of Python is the caller's: functions of the stub have no Python frame.
void FillCaller(abi::LogLine& line) {
  const py::handle frame(reinterpret_cast<PyObject*>(PyEval_GetFrame()));  // borrowed
  if (!frame) return;
  const py::object number = frame.attr("f_lineno");  // None for code that was made without lines
  line.line = number.is_none() ? 0 : number.cast<std::int32_t>();
  line.file = TextOf(frame.attr("f_code").attr("co_filename"));
}

template <abi::LogLevel level>
void LogAt(const std::string& message) {
  Log(message, level);
}

}  // namespace

void Log(const std::string& message, abi::LogLevel level) {
  abi::LogLine line{level, message.substr(0, std::strlen(message.c_str())), "",
                    0};  // the server cuts messages at a NUL
  FillCaller(line);
  const std::shared_ptr<channel::LogSink> sink = CurrentSink();
  if (sink->TryWrite(line)) return;
  const py::gil_scoped_release unlocked;
  sink->Write(std::move(line));
}

void SetLogSink(std::shared_ptr<channel::LogSink> sink) { CurrentSink() = std::move(sink); }

void BindLogger(py::module_& module) {
  struct Logger {};  // has static functions only
  py::class_<Logger> logger(module, "Logger");
  py::enum_<abi::LogLevel>(logger, "LogLevel")
      .value("INFO", abi::LogLevel::kInfo)
      .value("WARNING", abi::LogLevel::kWarning)
      .value("ERROR", abi::LogLevel::kError)
      .value("VERBOSE", abi::LogLevel::kVerbose)
      .export_values();
  const auto message = py::arg("message").none(false);
  logger.def_static("log", &Log, message, py::arg("level").none(false) = abi::LogLevel::kInfo)
      .def_static("log_info", &LogAt<abi::LogLevel::kInfo>, message)
      .def_static("log_warn", &LogAt<abi::LogLevel::kWarning>, message)
      .def_static("log_error", &LogAt<abi::LogLevel::kError>, message)
      .def_static("log_verbose", &LogAt<abi::LogLevel::kVerbose>, message);
}

}  // namespace envpack::module
