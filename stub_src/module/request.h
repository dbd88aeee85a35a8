// pb_utils.InferenceRequest.
#pragma once

#include <pybind11/pybind11.h>

#include <memory>
#include <vector>

#include "abi/values.h"
#include "module/tensor.h"

namespace envpack::module {

// A request that the server has sent. Create and destroy it with the GIL.
class InferenceRequest {
 public:
  explicit InferenceRequest(abi::Request value);

  const abi::Request& value() const { return value_; }
  const std::vector<std::shared_ptr<Tensor>>& inputs() const { return inputs_; }
  void SetFlags(std::uint32_t flags) { value_.flags = flags; }

 private:
  abi::Request value_;
  std::vector<std::shared_ptr<Tensor>> inputs_;
};

void BindRequest(pybind11::module_& module);

}  // namespace envpack::module
