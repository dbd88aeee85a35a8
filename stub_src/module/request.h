// pb_utils.InferenceRequest.
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "abi/values.h"
#include "abi/wire.h"
#include "module/response_sender.h"
#include "module/tensor.h"

namespace envpack::module {

// A request that the server has sent, or one that the model has made to send it. Create and destroy it with
// the GIL.
class InferenceRequest {
 public:
  // The server's. `wire` must outlive the request.
  InferenceRequest(abi::Request value, abi::Wire& wire);

  // The model's own; `value` has no inputs yet. Throws ModelException for inputs or names that are empty.
  InferenceRequest(abi::Request value, std::vector<std::shared_ptr<Tensor>> inputs);

  const abi::Request& value() const { return value_; }
  const std::vector<std::shared_ptr<Tensor>>& inputs() const { return inputs_; }
  const std::shared_ptr<ResponseSender>& sender() const { return sender_; }
  // The same, for the model to use. Throws ModelException if the server is too old for that.
  const std::shared_ptr<ResponseSender>& SenderForModel() const;
  void SetFlags(std::uint32_t flags) { value_.flags = flags; }

  // The request with its inputs, whose bytes are shared: valid while this object lives.
  abi::Request ToValue() const;

  // abi::kReleaseAll or abi::kReleaseReschedule.
  void SetReleaseFlags(std::uint32_t flags);
  bool IsRescheduled() const { return release_flags_ == abi::kReleaseReschedule; }

 private:
  abi::Wire* wire_ = nullptr;  // of the server's requests
  abi::Request value_;
  std::vector<std::shared_ptr<Tensor>> inputs_;
  std::shared_ptr<ResponseSender> sender_;
  std::uint32_t release_flags_ = abi::kReleaseAll;
};

void BindRequest(pybind11::module_& module);

}  // namespace envpack::module
