// BYTES tensors: for each element in C order four bytes of little-endian length, then that many bytes.
#pragma once

#include <pybind11/numpy.h>

#include <cstdint>
#include <string>
#include <vector>

namespace envpack::module {

// `array` is C-contiguous, with dtype object or S<n>. Elements that are neither bytes nor str go through
// str().
std::string SerializeBytes(const pybind11::array& array);

// An object array of bytes with the shape given. Throws ModelException if the data does not hold exactly as
// many elements as the shape says.
pybind11::array DeserializeBytes(const char* data, std::size_t size, const std::vector<std::int64_t>& dims);

}  // namespace envpack::module
