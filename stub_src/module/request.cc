// Requests of the server, and business logic scripting (BLS): requests that a model sends to other models.
#include "module/request.h"

#include <pybind11/stl.h>

#include <cstddef>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>

#include "base/forks.h"
#include "channel/streams.h"
#include "module/conversions.h"
#include "module/error.h"
#include "module/module.h"
#include "module/server_link.h"

namespace py = pybind11;

namespace envpack::module {

InferenceRequest::InferenceRequest(abi::Request value, abi::Wire& wire)
    : wire_(&wire),
      value_(std::move(value)),
      sender_(std::make_shared<ResponseSender>(&wire, value_, wire.Decoupled())) {
  inputs_.reserve(value_.inputs.size());
  for (abi::Tensor& input : value_.inputs) inputs_.push_back(std::make_shared<Tensor>(std::move(input)));
  value_.inputs.clear();
}

InferenceRequest::InferenceRequest(abi::Request value, std::vector<std::shared_ptr<Tensor>> inputs)
    : value_(std::move(value)),
      inputs_(std::move(inputs)),
      sender_(std::make_shared<ResponseSender>(nullptr, value_, false)) {
  const std::string which = " for request with id '" + value_.id + "' and model name '" + value_.model_name +
                            "' should not be empty.";
  for (const auto& input : inputs_) {
    if (!input) throw ModelException("Input tensor" + which);
  }
  if (value_.requested_outputs.count("") != 0) throw ModelException("Requested output name" + which);
}

abi::Request InferenceRequest::ToValue() const {
  abi::Request value = value_;
  for (const auto& input : inputs_) value.inputs.push_back(input->ToValue());
  return value;
}

const std::shared_ptr<ResponseSender>& InferenceRequest::SenderForModel() const {
  if (wire_ != nullptr && !wire_->Decoupled()) {
    Require(*wire_, abi::Feature::kLateResponses, "Response senders of models that are not decoupled need");
  }
  return sender_;
}

void InferenceRequest::SetReleaseFlags(std::uint32_t flags) {
  if (wire_ != nullptr) {
    sender_->RequireOwner();
    Require(*wire_, abi::Feature::kRescheduling, "Rescheduling a request needs");
    wire_->SetReleaseFlags(value_.origin, flags);
  }
  sender_->SetRescheduled(flags == abi::kReleaseReschedule);
}

namespace {

constexpr const char* kStreamsAre = "Streams of responses are";

// The iterator over the responses of a decoupled model. Create, use and destroy it with the GIL. Abandons the
// stream if it is destroyed before the last response has arrived.
class ResponseIterator {
 public:
  ResponseIterator(channel::Streams::Opened opened, std::shared_ptr<channel::Streams> streams)
      : streams_(std::move(streams)), id_(opened.id), stream_(std::move(opened.stream)) {}

  ~ResponseIterator() {
    if (has_last_ || !owner_process_.IsThisProcess()) return;
    const py::gil_scoped_release unlocked;
    streams_->Abandon(id_);
  }

  // After the last response, iteration restarts from the first.
  void Restart() {
    if (is_exhausted_) position_ = 0;
    is_exhausted_ = false;
  }

  // Waits for the next response without the GIL. Throws pybind11::stop_iteration after the last one.
  std::shared_ptr<InferenceResponse> Next() {
    RequireOwner(owner_process_, kStreamsAre);
    const auto taking = Unlocked([this] { return std::unique_lock(taking_); });
    if (position_ == seen_.size()) {
      if (has_last_) {
        is_exhausted_ = true;
        throw py::stop_iteration("Iteration is done for the responses.");
      }
      abi::InferResponse response = Unlocked([this] { return Take(); });
      has_last_ = response.is_last;
      seen_.push_back(std::make_shared<InferenceResponse>(std::move(response.response)));
    }
    return seen_[position_++];
  }

  // Requests the cancellation of a running request. Throws ModelException if the server lacks the feature.
  void Cancel() {
    RequireOwner(owner_process_, kStreamsAre);
    Require(*TheServer().wire, abi::Feature::kCancelledStreams,
            "Cancelling a request to another model needs");
    try {
      Unlocked([this] { streams_->Cancel(id_); });
    } catch (const abi::RegionFull& error) {
      throw ModelException(error.what());
    }
  }

 private:
  // A last response without a stream id may belong to another stream, so it only ends the iteration.
  abi::InferResponse Take() {
    abi::InferResponse response = stream_->Take();
    if (response.is_last) {
      response.stream == id_ ? streams_->Close(id_) : streams_->Abandon(id_);
    }
    return response;
  }

  const std::shared_ptr<channel::Streams> streams_;
  const forks::OwnerProcess owner_process_;
  const abi::StreamId id_;
  const std::shared_ptr<channel::Stream> stream_;
  std::mutex taking_;  // held while waiting for a response, so never locked with the GIL held
  std::vector<std::shared_ptr<InferenceResponse>> seen_;
  std::size_t position_ = 0;
  bool has_last_ = false;
  bool is_exhausted_ = false;
};

// Sends the request and waits without the GIL. Returns an InferenceResponse, with `decoupled` a
// ResponseIterator. An error of the other model is a response with an error. Throws ModelException outside of
// execute().
py::object Infer(const std::shared_ptr<InferenceRequest>& request, bool decoupled) {
  const ServerLink& link = TheServer();
  const auto streams = link.streams;
  if (!streams) throw ModelException("BLS is only supported during the 'execute' function.");
  abi::Wire& wire = *link.wire;
  const abi::Request value = request->ToValue();
  if (std::holds_alternative<std::string>(value.correlation_id)) {
    Require(wire, abi::Feature::kTextCorrelationIds, "Correlation IDs that are strings need");
  }
  if (value.parameters != abi::Request().parameters) {
    Require(wire, abi::Feature::kRequestParameters, "Parameters of a model's own request need");
  }
  if (decoupled) {
    if (forks::Depth() > 0) {
      throw ModelException(
          "Streams of responses are available in the model's process only, not in a forked one.");
    }
    auto opened = Unlocked([&] { return streams->Start(value); });
    return py::cast(std::make_shared<ResponseIterator>(std::move(opened), streams));
  }
  abi::Response response;
  const auto infer = [&] { response = wire.Infer(value, false).response; };
  if (const auto failure = Unlocked([&] { return abi::Attempt(infer); })) {
    response.error = abi::Error{failure->text};
  }
  return py::cast(std::make_shared<InferenceResponse>(std::move(response)));
}

// asyncio.get_running_loop(), which Python 3.6 does not have.
py::object RunningLoop() {
  py::object loop = py::module_::import("asyncio").attr("_get_running_loop")();
  if (loop.is_none()) throw std::runtime_error("no running event loop");
  return loop;
}

// The same as an awaitable of the running event loop, whose executor waits.
py::object InferAsync(const std::shared_ptr<InferenceRequest>& request, bool decoupled) {
  return RunningLoop().attr("run_in_executor")(
      py::none(), py::cpp_function([request, decoupled] { return Infer(request, decoupled); }));
}

py::object ContextOf(const abi::Trace& trace) {
  if (trace.context.empty()) return py::none();
  return py::str(trace.context);
}

abi::CorrelationId ToCorrelationId(const py::object& id) {
  if (py::isinstance<py::str>(id)) return id.cast<std::string>();
  if (!py::isinstance<py::int_>(id)) {
    if (id.is_none()) throw py::type_error("correlation_id must be an int or a str, not None");
    throw ModelException("Correlation ID must be integer or string");
  }
  const std::uint64_t number = PyLong_AsUnsignedLongLong(id.ptr());
  if (PyErr_Occurred() == nullptr) return number;
  PyErr_Clear();
  throw std::runtime_error("Correlation ID must be from 0 to 2**64 - 1, not " +
                           py::str(id).cast<std::string>());
}

std::shared_ptr<InferenceRequest> MakeRequest(const std::string& request_id, const py::object& correlation_id,
                                              std::vector<std::shared_ptr<Tensor>> inputs,
                                              const std::vector<std::string>& requested_output_names,
                                              const std::string& model_name, std::int64_t model_version,
                                              std::uint32_t flags, std::uint64_t timeout,
                                              const abi::PreferredMemory& preferred_memory,
                                              const abi::Trace& trace, const py::object& parameters) {
  abi::Request value;
  value.id = request_id;
  value.correlation_id = ToCorrelationId(correlation_id);
  value.model_name = model_name;
  value.model_version = model_version;
  value.flags = flags;
  value.timeout_us = timeout;
  if (!parameters.is_none()) value.parameters = ToParameters(parameters);
  value.preferred_memory = preferred_memory;
  value.trace = trace;
  value.requested_outputs.insert(requested_output_names.begin(), requested_output_names.end());
  return std::make_shared<InferenceRequest>(std::move(value), std::move(inputs));
}

void BindPreferredMemory(py::module_& module) {
  using Type = abi::PreferredMemory::Type;
  py::enum_<Type>(module, "MemoryType")
      .value("TRITONSERVER_MEMORY_GPU", Type::kGpu)
      .value("TRITONSERVER_MEMORY_CPU", Type::kCpu)
      .export_values();
  py::class_<abi::PreferredMemory>(module, "PreferredMemory")
      .def(py::init([](Type type, std::int64_t device) { return abi::PreferredMemory{type, device}; }),
           py::arg("preferred_memory_type").none(false), py::arg("preferred_device_id") = 0);
}

void BindResponseIterator(py::module_& module) {
  py::class_<ResponseIterator, std::shared_ptr<ResponseIterator>>(module, "ResponseIterator")
      .def("__iter__",
           [](const std::shared_ptr<ResponseIterator>& self) {
             self->Restart();
             return self;
           })
      .def("__next__", &ResponseIterator::Next)
      .def("cancel", &ResponseIterator::Cancel);
}

}  // namespace

void BindRequest(py::module_& module) {
  BindResponseIterator(module);
  BindPreferredMemory(module);
  py::class_<abi::Trace>(module, "InferenceTrace").def("get_context", &ContextOf);

  py::class_<InferenceRequest, std::shared_ptr<InferenceRequest>>(module, "InferenceRequest")
      .def(py::init(&MakeRequest), py::arg("request_id").none(false) = "", py::arg("correlation_id") = 0,
           py::arg("inputs").none(false), py::arg("requested_output_names").none(false),
           py::arg("model_name").none(false), py::arg("model_version").none(false) = -1,
           py::arg("flags").none(false) = 0, py::arg("timeout").none(false) = 0,
           py::arg("preferred_memory").none(false) = abi::PreferredMemory(),
           py::arg("trace").none(false) = abi::Trace(), py::arg("parameters") = py::none())
      .def("exec", &Infer, py::arg("decoupled") = false)
      .def("async_exec", &InferAsync, py::arg("decoupled") = false)
      .def("inputs", &InferenceRequest::inputs)
      .def("request_id", [](const InferenceRequest& self) { return self.value().id; })
      .def("correlation_id", [](const InferenceRequest& self) { return self.value().correlation_id; })
      .def("flags", [](const InferenceRequest& self) { return self.value().flags; })
      .def("set_flags", &InferenceRequest::SetFlags)
      .def("timeout", [](const InferenceRequest& self) { return self.value().timeout_us; })
      .def("parameters", [](const InferenceRequest& self) { return self.value().parameters; })
      .def("requested_output_names",
           [](const InferenceRequest& self) { return self.value().requested_outputs; })
      .def("trace", [](const InferenceRequest& self) { return self.value().trace; })
      .def("get_response_sender", &InferenceRequest::SenderForModel)
      .def("is_cancelled", [](const InferenceRequest& self) { return self.sender()->IsCancelled(); })
      .def("set_release_flags", &InferenceRequest::SetReleaseFlags, py::arg("flags"));
}

}  // namespace envpack::module
