#include "model/interpreter.h"

#include <pybind11/embed.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "forks.h"
#include "model/crash_notice.h"
#include "module/module.h"

namespace py = pybind11;

namespace envpack::model {

namespace {

bool VariableIs(const char* name, std::string_view wanted) {
  const char* value = std::getenv(name);
  return value != nullptr && value == wanted;
}

bool UserSiteAskedFor() { return VariableIs("ENVPACK_USER_SITE", "1"); }

// Adds the user site, also where PYTHONNOUSERSITE or the environment's pyvenv.cfg keep it out.
void AddUserSite() {
  auto site = py::module_::import("site");
  site.attr("ENABLE_USER_SITE") = true;
  site.attr("addusersitepackages")(py::none());
}

// Output is UTF-8 whatever the locale, as long as nobody has asked for something else.
PyStatus SetEncoding(PyConfig& config) {
  if (std::getenv("PYTHONIOENCODING") != nullptr) return PyStatus_Ok();
  return PyConfig_SetString(&config, &config.stdio_encoding, L"utf-8");
}

PyStatus Initialize(PyConfig& config, bool uses_environment) {
  config.parse_argv = 0;
  // Python itself would take any text for a yes, also "0".
  config.faulthandler = VariableIs("PYTHONFAULTHANDLER", "0") ? 0 : 1;
  if (uses_environment && !UserSiteAskedFor()) config.user_site_directory = 0;
  if (PyStatus status = SetEncoding(config); PyStatus_Exception(status)) return status;
  return Py_InitializeFromConfig(&config);
}

// Shows what an uncaught exception would show, and returns what Python would exit with.
int StatusOf(py::error_already_set& error) {
  if (!error.matches(PyExc_SystemExit)) {
    error.restore();
    PyErr_Print();
    return 1;
  }
  const py::object code = error.value().attr("code");
  if (code.is_none()) return 0;
  if (py::isinstance<py::int_>(code)) return code.cast<int>();
  py::print(code, py::arg("file") = py::module_::import("sys").attr("stderr"));
  return 1;
}

[[noreturn]] void EndForked(int status) {
  EndInterpreter();
  std::fflush(nullptr);
  _exit(status);
}

}  // namespace

void StartInterpreter(bool uses_environment, const std::string& instance) {
  module::RegisterModule();
  PyConfig config;
  PyConfig_InitPythonConfig(&config);
  const PyStatus status = Initialize(config, uses_environment);
  PyConfig_Clear(&config);
  if (PyStatus_Exception(status)) {
    throw InterpreterFailed(std::string("Python could not start: ") +
                            (status.err_msg != nullptr ? status.err_msg : "unknown reason"));
  }
  NameInCrashes(instance);
  forks::Watch();
  if (uses_environment && UserSiteAskedFor()) AddUserSite();
  py::module_::import("sys").attr("path").attr("insert")(0, "");
}

void EndInterpreter() {
  for (const char* stream : {"stdout", "stderr"}) {
    try {
      if (std::string_view(stream) == "stdout") py::module_::import("atexit").attr("_run_exitfuncs")();
      py::module_::import("sys").attr(stream).attr("flush")();
    } catch (py::error_already_set& error) {
      error.discard_as_unraisable("end of the stub");
    }
  }
}

void EndIfForked() {
  if (forks::Depth() > 0) EndForked(0);
}

void EndIfForked(py::error_already_set& error) {
  if (forks::Depth() > 0) EndForked(StatusOf(error));
}

}  // namespace envpack::model
