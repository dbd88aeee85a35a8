// Parameters of requests and responses: a dictionary in Python, JSON on the way.
#pragma once

#include <pybind11/pybind11.h>

#include <string>

namespace envpack::module {

// A JSON object. Throws ModelException if it is no dictionary from str to bool, int or str.
std::string ToParameters(const pybind11::object& parameters);

}  // namespace envpack::module
