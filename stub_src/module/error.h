// TritonError, which models put into responses, and TritonModelException, which the module raises.
#pragma once

#include <pybind11/pybind11.h>

#include <stdexcept>

namespace envpack::module {

// Becomes a TritonModelException in Python.
class ModelException : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

void BindErrors(pybind11::module_& module);

}  // namespace envpack::module
