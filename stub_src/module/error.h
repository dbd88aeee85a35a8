// TritonError, which models put into responses, and TritonModelException, which the module raises.
#pragma once

#include <pybind11/pybind11.h>

#include <stdexcept>
#include <string>

namespace envpack::module {

// Becomes a TritonModelException in Python.
class ModelException : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// str(type(object)), for messages.
inline std::string TypeOf(pybind11::handle object) {
  return pybind11::str(pybind11::type::handle_of(object));
}

}  // namespace envpack::module
