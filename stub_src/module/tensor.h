// pb_utils.Tensor.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "abi/values.h"

namespace envpack::module {

// Made by a model from an array, or by the server. Must be created, used through AsNumpy() and destroyed with
// the GIL; ToValue() needs none.
class Tensor {
 public:
  // A model's tensor. Keeps a C-contiguous array by reference; serialises BYTES right away.
  Tensor(std::string name, pybind11::array array);

  // The server's tensor. The data stays where it is until somebody asks for it.
  explicit Tensor(abi::Tensor value);

  // A tensor in the shared region, for outputs that are computed in place: AsNumpy() is writable memory that
  // is sent as it is. The bytes are not initialised. Throws ModelException for BYTES and unknown types, and
  // while there is no server to send anything to.
  static std::shared_ptr<Tensor> Empty(std::string name, std::vector<std::int64_t> dims,
                                       const pybind11::object& dtype);

  const std::string& name() const { return value_.name; }
  const std::vector<std::int64_t>& dims() const { return value_.dims; }
  abi::DataType dtype() const { return value_.dtype; }
  bool IsCpu() const { return value_.memory_type != abi::MemoryType::kGpu; }

  // The same array at each call. For tensors of the server it is a copy that the model may write to.
  pybind11::array AsNumpy();

  // Shares this tensor's bytes: valid while the Tensor lives.
  const abi::Tensor& ToValue() const { return value_; }

 private:
  abi::Tensor value_;
  pybind11::object array_;
};

void BindTensor(pybind11::module_& module);

}  // namespace envpack::module
