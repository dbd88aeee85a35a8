// pb_utils.Tensor, and its exchange with other libraries by DLPack.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "abi/values.h"

namespace envpack::module {

// A tensor of the model or the server. Creation, destruction and AsNumpy() need the GIL; ToValue() does not.
class Tensor {
 public:
  // A model's tensor. Refers to a C-contiguous array; serialises BYTES at once.
  Tensor(std::string name, pybind11::array array);

  // A tensor of the server. The data is not copied before AsNumpy().
  explicit Tensor(abi::Tensor value);

  // A tensor in the region, for outputs that are computed in place: AsNumpy() is writable memory that is sent
  // without a copy. The bytes are not initialised. Throws ModelException for BYTES and unknown types, and
  // outside of the time between initialize() and finalize().
  static std::shared_ptr<Tensor> Empty(std::string name, std::vector<std::int64_t> dims,
                                       const pybind11::object& dtype);

  const std::string& name() const { return value_.name; }
  const std::vector<std::int64_t>& dims() const { return value_.dims; }
  abi::DataType dtype() const { return value_.dtype; }
  bool IsCpu() const { return value_.memory_type != abi::MemoryType::kGpu; }

  // Returns the same array at each call. For tensors of the server it is a writable copy.
  pybind11::array AsNumpy();

  // Refers to this tensor's bytes: valid as long as the Tensor lives.
  const abi::Tensor& ToValue() const { return value_; }

 private:
  abi::Tensor value_;
  pybind11::object array_;
};

// The tensor of a DLPack capsule, or of an object with __dlpack__ and __dlpack_device__. It keeps the
// producer's memory alive. For memory on a GPU, waits for the work of the producer. Throws ModelException for
// tensors that Triton does not support.
abi::Tensor FromDlpack(std::string name, const pybind11::object& producer);

// A capsule named "dltensor" that keeps `tensor`, the Python object, alive until its consumer releases it.
pybind11::capsule ToDlpack(const pybind11::object& tensor);

// (type, id) in the numbering of DLPack: type 1 is the host, 2 is CUDA.
pybind11::tuple DlpackDevice(const Tensor& tensor);

}  // namespace envpack::module
