#include "module/response_sender.h"

#include <utility>

#include "module/error.h"

namespace py = pybind11;

namespace envpack::module {

ResponseSender::ResponseSender(abi::Wire* wire, const abi::Request& request, bool decoupled)
    : wire_(wire),
      decoupled_(decoupled),
      requested_outputs_(request.requested_outputs),
      origin_(request.origin),
      factory_gone_(request.origin.response_factory == 0) {}

ResponseSender::~ResponseSender() {
  if (factory_gone_ || !maker_.IsThisProcess()) return;
  const py::gil_scoped_release unlocked;
  try {
    DropFactory();
  } catch (const std::exception&) {
    // The region is full or broken. The server loses some memory; throwing here would end the process.
  }
}

void ResponseSender::Claim(bool has_response, std::uint32_t flags) {
  if (!decoupled_ && has_response && has_responded_) {
    throw ModelException("Unable to send response. Non-decoupled model cannot send more than one response.");
  }
  if (!decoupled_ && !has_response && !has_responded_) {
    throw ModelException(
        "Unable to send response. Non-decoupled model cannot send complete final before sending a response.");
  }
  if (closed_) throw ModelException("Unable to send response. Response sender has been closed.");
  has_responded_ = has_responded_ || has_response;
  if (flags == abi::kResponseFinal) closed_ = factory_gone_ = true;
}

void ResponseSender::Send(const std::shared_ptr<InferenceResponse>& response, std::uint32_t flags) {
  if (wire_ == nullptr) {
    throw ModelException(
        "Unable to send response. Response sender has no reference to the decoupled state of the model.");
  }
  if (flags != 0 && flags != abi::kResponseFinal) {
    throw ModelException("Unable to send response. Unsupported flag provided.");
  }
  if (!response && flags == 0) {
    throw ModelException(
        "Inference Response object must be provided when the response flags is set to zero.");
  }
  abi::Origin origin;
  {
    const std::lock_guard lock(mutex_);
    Claim(response != nullptr, flags);
    origin = origin_;
  }
  std::optional<abi::Response> value;
  if (response) {
    response->Prune(requested_outputs_);
    value = response->ToValue();
  }
  try {
    const py::gil_scoped_release unlocked;
    wire_->Send(origin, value, flags);
  } catch (const std::runtime_error& error) {
    throw ModelException(error.what());
  }
}

bool ResponseSender::IsCancelled() {
  abi::Origin origin;
  {
    const std::lock_guard lock(mutex_);
    // After the final response the server has forgotten the request; asking would read freed memory there.
    if (cancelled_ || factory_gone_) return cancelled_;
    origin = origin_;
  }
  const py::gil_scoped_release unlocked;
  const bool cancelled = wire_->IsCancelled(origin);
  const std::lock_guard lock(mutex_);
  return cancelled_ = cancelled_ || cancelled;
}

void ResponseSender::CloseForReturn() {
  const std::lock_guard lock(mutex_);
  Claim(true, 0);
  closed_ = true;
}

void ResponseSender::Close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
}

bool ResponseSender::IsFactoryGone() {
  const std::lock_guard lock(mutex_);
  return factory_gone_;
}

void ResponseSender::ForgetFactory() {
  const std::lock_guard lock(mutex_);
  factory_gone_ = true;
}

void ResponseSender::DropFactory() {
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(factory_gone_, true)) return;
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
