#include "module/response.h"

#include <pybind11/stl.h>

#include <algorithm>
#include <utility>

#include "module/error.h"

namespace py = pybind11;

namespace envpack::module {

InferenceResponse::InferenceResponse(std::vector<std::shared_ptr<Tensor>> outputs,
                                     std::optional<abi::Error> error)
    : outputs_(std::move(outputs)), error_(std::move(error)) {
  for (const auto& output : outputs_) {
    if (!output) throw ModelException("Output tensor for inference response should not be empty.");
  }
}

InferenceResponse::InferenceResponse(abi::Response value) : error_(std::move(value.error)) {
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
  for (const auto& output : outputs_) value.outputs.push_back(output->ToValue());
  return value;
}

void BindResponse(py::module_& module) {
  py::class_<InferenceResponse, std::shared_ptr<InferenceResponse>>(module, "InferenceResponse")
      .def(py::init<std::vector<std::shared_ptr<Tensor>>, std::optional<abi::Error>>(),
           py::arg("output_tensors").none(false) = std::vector<std::shared_ptr<Tensor>>(),
           py::arg("error") = std::nullopt)
      .def("output_tensors", &InferenceResponse::outputs)
      .def("has_error", [](const InferenceResponse& self) { return self.error().has_value(); })
      .def("error", &InferenceResponse::error);
}

}  // namespace envpack::module
