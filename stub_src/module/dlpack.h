// Tensors from and to other libraries without a copy, by way of DLPack.
#pragma once

#include <pybind11/pybind11.h>

#include <string>

#include "abi/values.h"
#include "module/tensor.h"

namespace envpack::module {

// The tensor of a DLPack capsule, or of an object with __dlpack__ and __dlpack_device__. It keeps the
// producer's memory until it dies. For memory on a GPU the producer's work is waited for. Throws
// ModelException for what Triton has no tensors for.
abi::Tensor FromDlpack(std::string name, const pybind11::object& producer);

// A capsule named "dltensor" that keeps `tensor`, the Python object, until its consumer has done with it.
pybind11::capsule ToDlpack(const pybind11::object& tensor);

// (type, id) as DLPack numbers devices: 1 is the host, 2 CUDA.
pybind11::tuple DlpackDevice(const Tensor& tensor);

}  // namespace envpack::module
