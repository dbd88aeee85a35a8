#include "module/logger.h"

#include <cstring>
#include <optional>
#include <utility>

#include "base/files.h"
#include "base/output.h"
#include "module/error.h"
#include "module/module.h"

namespace py = pybind11;

namespace envpack::module {

namespace {

std::shared_ptr<channel::LogForwarder> the_forwarder;  // guarded by the GIL

// The running line of Python is the caller's: functions of the stub have no Python frame.
void FillCaller(abi::LogLine& line) {
  const py::handle frame(reinterpret_cast<PyObject*>(PyEval_GetFrame()));  // borrowed
  if (!frame) return;
  const py::object number = frame.attr("f_lineno");  // None for code that was made without lines
  line.line = number.is_none() ? 0 : number.cast<std::int32_t>();
  line.file = TextOf(frame.attr("f_code").attr("co_filename"));
}

constexpr std::size_t kMostShown = 1000;

// The text with spaces in place of its line breaks, and its end cut off if it is long.
std::string InOneLine(const std::string& text) {
  std::string line;
  bool is_between = false;
  for (const char c : text) {
    const bool is_space = static_cast<unsigned char>(c) <= ' ';
    if (!is_space && is_between) line += ' ';
    if (!is_space) line += c;
    is_between = is_space;
  }
  return Beginning(line, kMostShown);
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
  const auto forwarder = the_forwarder;
  if (!forwarder) return channel::LogToStderr(line);
  if (forwarder->TryWrite(line)) return;
  const py::gil_scoped_release unlocked;
  forwarder->Write(std::move(line));
}

void LogFailure(const std::string& text) {
  const std::optional<std::string> choice = Variable("ENVPACK_LOG_FAILURES");
  if (choice == "0") return;
  Log(choice == "1" ? text : InOneLine(text), abi::LogLevel::kError);
}

void SetLogForwarder(std::shared_ptr<channel::LogForwarder> forwarder) {
  the_forwarder = std::move(forwarder);
}

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
