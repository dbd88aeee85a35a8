// pb_utils.InferenceRequest.
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "abi/values.h"
#include "abi/wire.h"
#include "module/response.h"
#include "module/tensor.h"

namespace envpack::module {

// A request from the server, or one that the model has created to send. Create and destroy it with the GIL.
class InferenceRequest {
 public:
  // A request from the server. `wire` must outlive it.
  InferenceRequest(abi::Request value, abi::Wire& wire);

  // A request of the model; `value` has no inputs. Throws ModelException for null inputs and empty names.
  InferenceRequest(abi::Request value, std::vector<std::shared_ptr<Tensor>> inputs);

  const abi::Request& value() const { return value_; }
  const std::vector<std::shared_ptr<Tensor>>& inputs() const { return inputs_; }
  const std::shared_ptr<ResponseSender>& sender() const { return sender_; }
  // The same for use by the model. Throws ModelException if the server lacks the feature.
  const std::shared_ptr<ResponseSender>& SenderForModel() const;
  void SetFlags(std::uint32_t flags) { value_.flags = flags; }

  // The request with its inputs. Refers to their bytes: valid as long as this object lives.
  abi::Request ToValue() const;

  // abi::kReleaseAll or abi::kReleaseReschedule.
  void SetReleaseFlags(std::uint32_t flags);
  bool IsRescheduled() const { return sender_->IsRescheduled(); }

 private:
  abi::Wire* wire_ = nullptr;  // null for requests of the model
  abi::Request value_;
  std::vector<std::shared_ptr<Tensor>> inputs_;
  std::shared_ptr<ResponseSender> sender_;
};

}  // namespace envpack::module
