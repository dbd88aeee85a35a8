#include "module/response_sender.h"

#include <utility>

#include "module/error.h"
#include "module/requirement.h"
#include "shm/region.h"

namespace py = pybind11;

namespace envpack::module {

ResponseSender::ResponseSender(abi::Wire* wire, const abi::Request& request, bool decoupled)
    : wire_(wire),
      decoupled_(decoupled),
      requested_outputs_(request.requested_outputs),
      origin_(request.origin),
      state_{request.origin.response_factory == 0, false, false, false} {}

ResponseSender::~ResponseSender() {
  if (state_.factory_gone || !maker_.IsThisProcess()) return;
  const py::gil_scoped_release unlocked;
  try {
    DropFactory();
  } catch (const std::exception&) {
    // The region is full or broken. The server loses some memory; throwing here would end the process.
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
  if (flags == abi::kResponseFinal) state_.closed = state_.factory_gone = true;
}

// Takes back what Claim() has changed, and nothing that another thread has changed since.
void ResponseSender::Unclaim(const State& before, std::uint32_t flags) {
  const std::lock_guard lock(mutex_);
  state_.has_responded = before.has_responded;
  if (flags != abi::kResponseFinal) return;
  state_.closed = state_.factory_gone = state_.queries_ended = false;
}

void ResponseSender::Send(const std::shared_ptr<InferenceResponse>& response, std::uint32_t flags) {
  if (wire_ == nullptr) {
    throw ModelException(
        "Unable to send response. Response sender has no reference to the decoupled state of the model.");
  }
  if (flags != 0 && flags != abi::kResponseFinal) {
    throw ModelException("Unable to send response. Unsupported flag provided.");
  }
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
  }
  if (response) {
    response->Prune(requested_outputs_);
    value = response->ToValue();
  }
  try {
    const py::gil_scoped_release unlocked;
    if (flags == abi::kResponseFinal) EndQueries();
    wire_->Send(origin_, value, flags);
  } catch (const shm::RegionFull& error) {
    // The server has seen nothing of it, so the model may still send something smaller, such as an error.
    Unclaim(before, flags);
    throw ModelException(error.what());
  } catch (const std::runtime_error& error) {
    throw ModelException(error.what());
  }
}

bool ResponseSender::IsCancelled() {
  if (wire_ != nullptr)
    Require(*wire_, abi::Feature::kCancelQueries, "Asking whether a request is cancelled needs");
  {
    const std::lock_guard lock(mutex_);
    // After the final response the server has forgotten the request; asking would read freed memory there.
    if (cancelled_ || wire_ == nullptr || state_.queries_ended) return cancelled_;
    if (HasFactory() && state_.factory_gone) return cancelled_;
    ++queries_;
  }
  const py::gil_scoped_release unlocked;
  bool cancelled = false;
  try {
    cancelled = wire_->IsCancelled(origin_);
  } catch (const shm::RegionFull&) {
    // There was no room for the question. Whoever asks asks again.
  }
  const std::lock_guard lock(mutex_);
  --queries_;
  query_done_.notify_all();
  return cancelled_ = cancelled_ || cancelled;
}

void ResponseSender::EndQueries() {
  std::unique_lock lock(mutex_);
  state_.queries_ended = true;
  query_done_.wait(lock, [this] { return queries_ == 0; });
}

void ResponseSender::CloseForReturn() {
  const std::lock_guard lock(mutex_);
  Claim(true, 0);
  state_.closed = true;
}

void ResponseSender::Close() {
  const std::lock_guard lock(mutex_);
  state_.closed = true;
}

bool ResponseSender::IsFactoryGone() {
  const std::lock_guard lock(mutex_);
  return state_.factory_gone;
}

void ResponseSender::ForgetFactory() {
  const std::lock_guard lock(mutex_);
  state_.factory_gone = true;
}

void ResponseSender::DropFactory() {
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(state_.factory_gone, true)) return;
  }
  wire_->DropResponseFactory(origin_);
}

void BindResponseSender(py::module_& module) {
  py::class_<ResponseSender, std::shared_ptr<ResponseSender>>(module, "InferenceResponseSender")
      .def("send", &ResponseSender::Send, py::arg("response") = std::shared_ptr<InferenceResponse>(),
           py::arg("flags") = 0)
      .def("is_cancelled", &ResponseSender::IsCancelled);
}

}  // namespace envpack::module
