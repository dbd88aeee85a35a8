#include "module/request.h"

#include <pybind11/stl.h>

#include <stdexcept>
#include <string>
#include <utility>

#include "module/conversions.h"
#include "module/error.h"
#include "module/inference.h"
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

}  // namespace

void BindRequest(py::module_& module) {
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
