#include "model/python_api.h"

#include <pybind11/pybind11.h>

#include <clocale>
#include <cstdlib>

#include "base/files.h"

namespace py = pybind11;

namespace envpack::model {

#if PY_VERSION_HEX >= 0x03080000

namespace {

PyStatus Configure(PyConfig& config, const PythonOptions& options) {
  config.parse_argv = 0;
  config.faulthandler = options.tracebacks ? 1 : 0;
  if (options.no_user_site) config.user_site_directory = 0;
  if (std::getenv("PYTHONIOENCODING") == nullptr) {
    const PyStatus status = PyConfig_SetString(&config, &config.stdio_encoding, L"utf-8");
    if (PyStatus_Exception(status)) return status;
  }
  if (!options.home) return PyStatus_Ok();
  const PyStatus status = PyConfig_SetBytesString(&config, &config.home, options.home->prefix.c_str());
  if (PyStatus_Exception(status)) return status;
  return PyConfig_SetBytesString(&config, &config.executable, options.home->executable.c_str());
}

}  // namespace

std::string InitializePython(const PythonOptions& options) {
  PyConfig config;
  PyConfig_InitPythonConfig(&config);
  PyStatus status = Configure(config, options);
  if (!PyStatus_Exception(status)) status = Py_InitializeFromConfig(&config);
  PyConfig_Clear(&config);
  if (!PyStatus_Exception(status)) return {};
  return status.err_msg != nullptr ? status.err_msg : "unknown reason";
}

#else

namespace {

// File names are UTF-8 in the C locale too, as from 3.8 on. Python chooses its locale by this variable.
void ReplaceCLocale() {
  const char* locale = std::setlocale(LC_CTYPE, "");
  if (locale == nullptr || std::string(locale) != "C" || Variable("LC_ALL")) return;
  if (std::setlocale(LC_CTYPE, "C.UTF-8") != nullptr) setenv("LC_CTYPE", "C.UTF-8", 1);
}

// Python keeps the addresses of both texts.
void SetHome(const Home& home) {
  Py_SetPythonHome(Py_DecodeLocale(home.prefix.c_str(), nullptr));
  Py_SetProgramName(Py_DecodeLocale(home.executable.c_str(), nullptr));
}

// PYTHONWARNINGS, which the program `python3` reads, not the library.
void ApplyWarningFilters() {
  py::list filters;
  const py::str variable(Variable("PYTHONWARNINGS").value_or(""));
  for (const py::handle filter : variable.attr("split")(",")) {
    if (const py::object stripped = filter.attr("strip")(); py::len(stripped) > 0) filters.append(stripped);
  }
  py::module_::import("sys").attr("warnoptions").attr("extend")(filters);
  py::module_::import("warnings").attr("_processoptions")(filters);
}

}  // namespace

std::string InitializePython(const PythonOptions& options) {
  ReplaceCLocale();
  if (Variable("PYTHONUNBUFFERED")) Py_UnbufferedStdioFlag = 1;
  if (options.no_user_site || Variable("PYTHONNOUSERSITE")) Py_NoUserSiteDirectory = 1;
  if (options.home) SetHome(*options.home);
  if (std::getenv("PYTHONIOENCODING") == nullptr) Py_SetStandardStreamEncoding("utf-8", nullptr);
  Py_Initialize();
  PyEval_InitThreads();
  wchar_t name[] = L"";
  wchar_t* arguments[] = {name};
  PySys_SetArgvEx(1, arguments, 0);
  py::module_::import("faulthandler").attr(options.tracebacks ? "enable" : "disable")();
  ApplyWarningFilters();
  return {};
}

#endif

#if PY_VERSION_HEX >= 0x03070000

void BeforePythonForks() { PyOS_BeforeFork(); }

void AfterPythonForked(pid_t pid) { pid == 0 ? PyOS_AfterFork_Child() : PyOS_AfterFork_Parent(); }

#else

void BeforePythonForks() { _PyImport_AcquireLock(); }

void AfterPythonForked(pid_t pid) {
  if (pid == 0) {
    PyOS_AfterFork();
  } else {
    _PyImport_ReleaseLock();
  }
}

#endif

}  // namespace envpack::model
