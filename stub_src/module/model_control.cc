#include "module/model_control.h"

#include <pybind11/stl.h>

#include <map>
#include <string>

#include "abi/values.h"
#include "module/error.h"
#include "module/requirement.h"
#include "module/server_link.h"

namespace py = pybind11;

namespace envpack::module {

namespace {

std::map<std::string, std::string> FilesOf(const std::string& model, const py::object& files) {
  if (files.is_none()) return {};
  if (!py::isinstance<py::dict>(files)) {
    throw ModelException("failed to load model '" + model +
                         "', files should be a dictionary of file paths and file contents");
  }
  std::map<std::string, std::string> contents;
  for (const auto& [path, content] : py::reinterpret_borrow<py::dict>(files)) {
    if (!py::isinstance<py::bytes>(content)) {
      throw py::type_error("the content of file '" + py::str(path).cast<std::string>() + "' must be bytes");
    }
    contents.emplace(path.cast<std::string>(), content.cast<std::string>());
  }
  return contents;
}

// Runs `ask` with the wire, as AskServer() does, if the server lets its models control others at all.
template <typename Ask>
auto AskForModels(const std::string& prefix, Ask ask) {
  return AskServer(prefix, [&](abi::Wire& wire) {
    Require(wire, abi::Feature::kModelControl, "Loading, unloading and asking after models needs");
    return ask(wire);
  });
}

void LoadModel(const std::string& name, const std::string& config, const py::object& files) {
  const abi::ModelToLoad model{name, config, FilesOf(name, files)};
  AskForModels("Failed to load model: ", [&](abi::Wire& wire) { wire.LoadModel(model); });
}

void UnloadModel(const std::string& name, bool unload_dependents) {
  AskForModels("Failed to unload model: ",
               [&](abi::Wire& wire) { wire.UnloadModel(name, unload_dependents); });
}

bool IsModelReady(const std::string& name, const std::string& version) {
  return AskForModels("Failed to check model readiness: ",
                      [&](abi::Wire& wire) { return wire.IsModelReady(name, version); });
}

}  // namespace

void BindModelControl(py::module_& module) {
  const auto name = py::arg("model_name").none(false);
  module.def("load_model", &LoadModel, name, py::arg("config") = "", py::arg("files") = py::none());
  module.def("unload_model", &UnloadModel, name, py::arg("unload_dependents") = false);
  module.def("is_model_ready", &IsModelReady, name, py::arg("model_version") = "");
}

}  // namespace envpack::module
