#include "module/error.h"

#include "abi/values.h"
#include "module/module.h"

namespace py = pybind11;

namespace envpack::module {

namespace {

// Whether the names of all functions that were running, and of their files, have UTF-8.
bool NamesHaveUtf8(py::object trace) {
  if (!trace) return true;
  while (!trace.attr("tb_next").is_none()) trace = trace.attr("tb_next");
  for (py::object frame = trace.attr("tb_frame"); !frame.is_none(); frame = frame.attr("f_back")) {
    for (const char* name : {"co_filename", "co_name"}) {
      if (PyUnicode_AsUTF8(py::object(frame.attr("f_code").attr(name)).ptr()) != nullptr) continue;
      PyErr_Clear();
      return false;
    }
  }
  return true;
}

// The lines that Python prints for an exception.
std::string TracebackOf(const py::object& exception, const py::object& trace) {
  const py::object lines =
      py::module_::import("traceback").attr("format_exception")(py::type::of(exception), exception, trace);
  return TextOf(py::str("").attr("join")(lines));
}

}  // namespace

std::string TextOf(py::handle text) {
  const auto bytes =
      py::reinterpret_steal<py::bytes>(PyUnicode_AsEncodedString(text.ptr(), "utf-8", "backslashreplace"));
  if (!bytes) throw py::error_already_set();
  return bytes;
}

std::string TextOf(const py::error_already_set& error) {
  return NamesHaveUtf8(error.trace()) ? error.what() : TracebackOf(error.value(), error.trace());
}

py::object FindModule(const char* name) {
  const auto modules = py::module_::import("sys").attr("modules").cast<py::dict>();
  return modules.contains(name) ? py::object(modules[name]) : py::object();
}

void BindErrors(py::module_& module) {
  // Never released: the translator may run until the process ends.
  static PyObject* exception = nullptr;
  exception = PyErr_NewException("c_python_backend_utils.TritonModelException", PyExc_Exception, nullptr);
  module.add_object("TritonModelException", py::reinterpret_borrow<py::object>(exception));
  py::register_exception_translator([](std::exception_ptr pointer) {
    try {
      if (pointer) std::rethrow_exception(pointer);
    } catch (const ModelException& error) {
      PyErr_SetString(exception, error.what());
    }
  });

  py::class_<abi::Error> error(module, "TritonError");
  py::enum_<abi::ErrorCode>(error, "__ErrorCode")
      .value("UNKNOWN", abi::ErrorCode::kUnknown)
      .value("INTERNAL", abi::ErrorCode::kInternal)
      .value("NOT_FOUND", abi::ErrorCode::kNotFound)
      .value("INVALID_ARG", abi::ErrorCode::kInvalidArg)
      .value("UNAVAILABLE", abi::ErrorCode::kUnavailable)
      .value("UNSUPPORTED", abi::ErrorCode::kUnsupported)
      .value("ALREADY_EXISTS", abi::ErrorCode::kAlreadyExists)
      .value("CANCELLED", abi::ErrorCode::kCancelled)
      .export_values();
  error
      .def(py::init(
               [](std::string message, abi::ErrorCode code) { return abi::Error{std::move(message), code}; }),
           py::arg("message").none(false), py::arg("code").none(false) = abi::ErrorCode::kInternal)
      .def("message", [](const abi::Error& self) { return self.message; })
      .def("code", [](const abi::Error& self) { return self.code; });
}

}  // namespace envpack::module
