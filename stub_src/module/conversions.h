// Converts between values of Python and Triton: data types, BYTES tensors, JSON, parameters.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <cstdint>
#include <string>
#include <vector>

#include "abi/values.h"

namespace envpack::module {

// kInvalid for types that Triton lacks: complex numbers, dates, text (U), structures, foreign byte order.
abi::DataType FromNumpy(const pybind11::dtype& dtype);

// Throws ModelException for types that NumPy lacks.
pybind11::dtype ToNumpy(abi::DataType dtype);

// The format of BYTES tensors: for each element, in C order, its length in four bytes (little-endian), then
// its bytes. `array` is C-contiguous with dtype object or S<n>. str() converts other elements.
std::string SerializeBytes(const pybind11::array& array);

// An object array of bytes with the shape `dims`. Throws ModelException for another number of elements.
pybind11::array DeserializeBytes(const char* data, std::size_t size, const std::vector<std::int64_t>& dims);

// By Python's module `json`.
std::string ToJson(const pybind11::object& value);

// Parameters of a request or a response as a JSON object. Throws ModelException unless they are a dict from
// str to bool, int or str.
std::string ToParameters(const pybind11::object& parameters);

}  // namespace envpack::module
