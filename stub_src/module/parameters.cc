#include "module/parameters.h"

#include "module/error.h"

namespace py = pybind11;

namespace envpack::module {

namespace {

std::string TypeOf(py::handle object) { return py::str(py::type::handle_of(object)); }

}  // namespace

std::string ToParameters(const py::object& parameters) {
  if (!py::isinstance<py::dict>(parameters)) {
    throw ModelException("Expect parameters to be a dict, got " + TypeOf(parameters));
  }
  for (const auto& [key, value] : py::reinterpret_borrow<py::dict>(parameters)) {
    if (!py::isinstance<py::str>(key)) {
      throw ModelException("Expect parameters keys to have type str, found type " + TypeOf(key));
    }
    if (!py::isinstance<py::int_>(value) && !py::isinstance<py::str>(value)) {  // bool is an int
      throw ModelException("Expect parameters values to have type bool/int/str, found type " + TypeOf(value));
    }
  }
  return py::module_::import("json").attr("dumps")(parameters).cast<std::string>();
}

}  // namespace envpack::module
