#include "module/request.h"

#include <pybind11/stl.h>

#include <utility>

namespace py = pybind11;

namespace envpack::module {

namespace {

// pb_utils.InferenceTrace: the trace that a request belongs to.
struct InferenceTrace {
  std::string context;
};

InferenceTrace TraceOf(const InferenceRequest& request) { return {request.value().trace_context}; }

py::object ContextOf(const InferenceTrace& trace) {
  if (trace.context.empty()) return py::none();
  return py::str(trace.context);
}

}  // namespace

InferenceRequest::InferenceRequest(abi::Request value, abi::Wire& wire)
    : wire_(wire),
      value_(std::move(value)),
      sender_(std::make_shared<ResponseSender>(wire, value_, wire.Decoupled())) {
  inputs_.reserve(value_.inputs.size());
  for (abi::Tensor& input : value_.inputs) inputs_.push_back(std::make_shared<Tensor>(std::move(input)));
  value_.inputs.clear();
}

void InferenceRequest::SetReleaseFlags(std::uint32_t flags) {
  wire_.SetReleaseFlags(value_.origin, flags);
  release_flags_ = flags;
}

void BindRequest(py::module_& module) {
  py::class_<InferenceTrace>(module, "InferenceTrace").def("get_context", &ContextOf);

  py::class_<InferenceRequest, std::shared_ptr<InferenceRequest>>(module, "InferenceRequest")
      .def("inputs", &InferenceRequest::inputs)
      .def("request_id", [](const InferenceRequest& self) { return self.value().id; })
      .def("correlation_id", [](const InferenceRequest& self) { return self.value().correlation_id; })
      .def("flags", [](const InferenceRequest& self) { return self.value().flags; })
      .def("set_flags", &InferenceRequest::SetFlags)
      .def("timeout", [](const InferenceRequest& self) { return self.value().timeout_us; })
      .def("parameters", [](const InferenceRequest& self) { return self.value().parameters; })
      .def("requested_output_names",
           [](const InferenceRequest& self) { return self.value().requested_outputs; })
      .def("trace", &TraceOf)
      .def("get_response_sender", &InferenceRequest::sender)
      .def("is_cancelled", [](const InferenceRequest& self) { return self.sender()->IsCancelled(); })
      .def("set_release_flags", &InferenceRequest::SetReleaseFlags, py::arg("flags"));
}

}  // namespace envpack::module
