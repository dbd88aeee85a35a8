#include "module/response.h"

#include <pybind11/stl.h>

#include <algorithm>
#include <utility>

#include "module/error.h"
#include "module/parameters.h"
#include "module/requirement.h"

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
  const auto unwanted = [&](const auto& output) { return requested.count(output->name()) == 0; };
  outputs_.erase(std::remove_if(outputs_.begin(), outputs_.end(), unwanted), outputs_.end());
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

void BindResponse(py::module_& module) {
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
}

}  // namespace envpack::module
