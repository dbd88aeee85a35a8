#include "module/response.h"

#include <pybind11/stl.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "module/conversions.h"
#include "module/error.h"
#include "module/logger.h"
#include "module/module.h"
#include "module/server_link.h"

namespace py = pybind11;

namespace envpack::module {

InferenceResponse::InferenceResponse(std::vector<std::shared_ptr<Tensor>> outputs,
                                     std::optional<abi::Error> error, std::string parameters)
    : outputs_(std::move(outputs)), error_(std::move(error)), parameters_(std::move(parameters)) {
  for (const auto& output : outputs_) {
    if (!output) throw ModelException("Output tensor for inference response should not be empty.");
  }
}

InferenceResponse::InferenceResponse(abi::Response value)
    : error_(std::move(value.error)), parameters_(std::move(value.parameters)) {
  for (abi::Tensor& output : value.outputs) outputs_.push_back(std::make_shared<Tensor>(std::move(output)));
}

void InferenceResponse::Prune(const std::set<std::string>& requested) {
  if (requested.empty()) return;
  const auto is_wanted = [&](const auto& output) { return requested.count(output->name()) != 0; };
  const auto unwanted = std::stable_partition(outputs_.begin(), outputs_.end(), is_wanted);
  std::move(unwanted, outputs_.end(), std::back_inserter(pruned_));
  outputs_.erase(unwanted, outputs_.end());
}

abi::Response InferenceResponse::ToValue() const {
  abi::Response value;
  value.error = error_;
  value.parameters = parameters_;
  for (const auto& output : outputs_) value.outputs.push_back(output->ToValue());
  return value;
}

void RequireParameters(const abi::Wire& wire, const InferenceResponse& response) {
  if (!response.parameters().empty()) {
    Require(wire, abi::Feature::kResponseParameters, "Parameters of a response need");
  }
}

ResponseSender::ResponseSender(abi::Wire* wire, const abi::Request& request, bool decoupled)
    : wire_(wire),
      decoupled_(decoupled),
      requested_outputs_(request.requested_outputs),
      origin_(request.origin),
      state_{request.origin.response_factory == 0, false, false, false, false} {}

ResponseSender::~ResponseSender() {
  if (state_.factory_deleted || !owner_process_.IsThisProcess()) return;
  try {
    if (!loss_.empty() && !is_rescheduled_ && Fail(loss_)) LogFailure(loss_);
    const py::gil_scoped_release unlocked;
    DeleteFactory();
  } catch (const std::exception&) {
    // The region is full or corrupt. The server leaks the factory; throwing here would end the process.
  }
}

void ResponseSender::Claim(bool has_response, std::uint32_t flags) {
  if (!decoupled_ && has_response && state_.has_responded) {
    throw ModelException("Unable to send response. Non-decoupled model cannot send more than one response.");
  }
  if (!decoupled_ && !has_response && !state_.has_responded) {
    throw ModelException(
        "Unable to send response. Non-decoupled model cannot send complete final before sending a response.");
  }
  if (state_.closed) throw ModelException("Unable to send response. Response sender has been closed.");
  state_.has_responded = state_.has_responded || has_response;
  if (flags == abi::kResponseFinal) state_.closed = state_.factory_deleted = true;
}

// Reverts the changes of Claim(), but not those of other threads since then.
void ResponseSender::Unclaim(const State& before, std::uint32_t flags) {
  const std::lock_guard lock(mutex_);
  state_.has_responded = before.has_responded;
  if (flags != abi::kResponseFinal) return;
  state_.factory_deleted = false;
  state_.closed = state_.queries_ended = state_.has_failed;
}

void ResponseSender::Send(const std::shared_ptr<InferenceResponse>& response, std::uint32_t flags) {
  if (wire_ == nullptr) {
    throw ModelException(
        "Unable to send response. Response sender has no reference to the decoupled state of the model.");
  }
  if (flags != 0 && flags != abi::kResponseFinal) {
    throw ModelException("Unable to send response. Unsupported flag provided.");
  }
  RequireOwner();
  if (response) RequireParameters(*wire_, *response);
  if (!response && flags == 0) {
    throw ModelException(
        "Inference Response object must be provided when the response flags is set to zero.");
  }
  std::optional<abi::Response> value;
  State before;
  {
    const std::lock_guard lock(mutex_);
    before = state_;
    Claim(response != nullptr, flags);
    ++uses_;
  }
  const Use use{*this};
  if (response) {
    response->Prune(requested_outputs_);
    value = response->ToValue();
  }
  try {
    const py::gil_scoped_release unlocked;
    if (flags == abi::kResponseFinal) AwaitOtherUses(1);
    const std::lock_guard one_at_a_time(sending_);
    wire_->Send(origin_, value, flags);
  } catch (const abi::RegionFull& error) {
    // The server has not seen the response, so the model may send a smaller one, such as an error.
    Unclaim(before, flags);
    throw ModelException(error.what());
  } catch (const std::runtime_error& error) {
    throw ModelException(error.what());
  }
}

bool ResponseSender::Fail(const std::string& text) noexcept {
  try {
    using Outputs = std::vector<std::shared_ptr<Tensor>>;
    const auto error = std::make_shared<InferenceResponse>(Outputs(), abi::Error{text});
    Send(IsComplete() ? nullptr : error, abi::kResponseFinal);
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

void ResponseSender::RequireOwner() const {
  module::RequireOwner(owner_process_, "Requests of the server are");
}

bool ResponseSender::IsCancelled() {
  if (wire_ != nullptr) {
    RequireOwner();
    Require(*wire_, abi::Feature::kCancelQueries, "Cancellation queries need");
  }
  {
    const std::lock_guard lock(mutex_);
    // After the final response the request is deleted; a query would read freed memory in the server.
    if (cancelled_ || wire_ == nullptr || state_.queries_ended) return cancelled_;
    if (HasFactory() && state_.factory_deleted) return cancelled_;
    ++uses_;
  }
  const py::gil_scoped_release unlocked;
  const Use use{*this};
  bool cancelled = false;
  try {
    cancelled = wire_->IsCancelled(origin_);
  } catch (const abi::RegionFull&) {
    // No room for the query. The caller will repeat it.
  }
  const std::lock_guard lock(mutex_);
  return cancelled_ = cancelled_ || cancelled;
}

void ResponseSender::AwaitOtherUses(int own) {
  std::unique_lock lock(mutex_);
  state_.queries_ended = true;
  use_ended_.wait(lock, [&] { return uses_ == own; });
}

void ResponseSender::EndUse() {
  const std::lock_guard lock(mutex_);
  --uses_;
  use_ended_.notify_all();
}

void ResponseSender::DeleteFactory() {
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(state_.factory_deleted, true)) return;
  }
  wire_->DeleteResponseFactory(origin_);
}

void BindResponses(py::module_& module) {
  py::class_<InferenceResponse, std::shared_ptr<InferenceResponse>>(module, "InferenceResponse")
      .def(py::init([](std::vector<std::shared_ptr<Tensor>> outputs, std::optional<abi::Error> error,
                       const py::object& parameters) {
             return std::make_shared<InferenceResponse>(std::move(outputs), std::move(error),
                                                        parameters.is_none() ? "" : ToParameters(parameters));
           }),
           py::arg("output_tensors").none(false) = std::vector<std::shared_ptr<Tensor>>(),
           py::arg("error") = std::nullopt, py::arg("parameters") = py::none())
      .def("parameters", &InferenceResponse::parameters)
      .def("output_tensors", &InferenceResponse::outputs)
      .def("has_error", [](const InferenceResponse& self) { return self.error().has_value(); })
      .def("error", &InferenceResponse::error);

  py::class_<ResponseSender, std::shared_ptr<ResponseSender>>(module, "InferenceResponseSender")
      .def("send", &ResponseSender::Send, py::arg("response") = std::shared_ptr<InferenceResponse>(),
           py::arg("flags") = 0)
      .def("is_cancelled", &ResponseSender::IsCancelled);
}

}  // namespace envpack::module
