// NumPy's data types and Triton's.
#pragma once

#include <pybind11/numpy.h>

#include "abi/values.h"

namespace envpack::module {

// kInvalid if Triton has no such type: complex numbers, dates, text (U), structures, foreign byte order.
abi::DataType FromNumpy(const pybind11::dtype& dtype);

// Throws TritonModelException's C++ side for types that NumPy does not have.
pybind11::dtype ToNumpy(abi::DataType dtype);

}  // namespace envpack::module
