#include "module/error.h"

#include "abi/values.h"
#include "module/module.h"

namespace py = pybind11;

namespace envpack::module {

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
