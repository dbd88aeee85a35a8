// TritonError, which models put into responses, and TritonModelException, which the module raises.
#pragma once

#include <pybind11/pybind11.h>

#include <stdexcept>
#include <string>

namespace envpack::module {

// Becomes a TritonModelException in Python.
struct ModelException : std::runtime_error {
  using runtime_error::runtime_error;
};

// A str in UTF-8, with escapes for surrogates, by which Python represents other bytes of file names.
std::string TextOf(pybind11::handle text);

// What Python raised, and where. Use it in place of what(), which ends the process if the name of a file or
// of a function has no UTF-8.
std::string TextOf(const pybind11::error_already_set& error);

// A module that has been imported; null if it has not.
pybind11::object FindModule(const char* name);

// str(type(object)), for messages.
inline std::string TypeOf(pybind11::handle object) {
  return TextOf(pybind11::str(pybind11::type::handle_of(object)));
}

}  // namespace envpack::module
