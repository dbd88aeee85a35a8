#include "model/python_model.h"

#include <pybind11/stl.h>
#include <unistd.h>

#include <chrono>
#include <utility>

#include "build_info.h"
#include "model/import_model.h"
#include "module/error.h"

namespace py = pybind11;

namespace envpack::model {

namespace {

constexpr const char* kUtilities = "triton_python_backend_utils";

py::object VersionOfNumpy() {
  const auto modules = py::module_::import("sys").attr("modules").cast<py::dict>();
  if (!modules.contains("numpy")) return py::none();
  return modules["numpy"].attr("__version__");
}

}  // namespace

PythonModel::PythonModel(const abi::Launch& launch, abi::Wire& wire) : launch_(launch), wire_(wire) {
  const auto started = std::chrono::steady_clock::now();
  class_ = ImportModel(launch, wire).attr("TritonPythonModel");
  import_time_ = std::chrono::steady_clock::now() - started;
}

std::string PythonModel::AutoComplete(const std::string& model_config) {
  const auto config_class = py::module_::import(kUtilities).attr("ModelConfig");
  py::object config = config_class(model_config);
  if (py::hasattr(class_, "auto_complete_config")) {
    config = class_.attr("auto_complete_config")(config);
    if (!py::isinstance(config, config_class)) {
      throw module::ModelException("auto_complete_config function in model '" + launch_.name +
                                   "' must return a valid pb.ModelConfig object.");
    }
  }
  return py::module_::import("json").attr("dumps")(config.attr("_model_config")).cast<std::string>();
}

void PythonModel::Initialize(const std::map<std::string, std::string>& arguments) {
  const auto started = std::chrono::steady_clock::now();
  instance_ = class_();
  if (py::hasattr(instance_, "initialize")) instance_.attr("initialize")(arguments);
  initialize_time_ = std::chrono::steady_clock::now() - started;
}

abi::ExecuteAnswer PythonModel::Execute(Execution& execution) {
  const py::object execute = py::getattr(instance_, "execute", py::none());
  if (execute.is_none()) {
    throw module::ModelException("Python model " + launch_.model_file +
                                 " does not implement `execute` method.");
  }
  return execution.Run(execute, loop_);
}

bool PythonModel::HasReadiness() const { return py::hasattr(instance_, "is_ready"); }

bool PythonModel::IsReady() {
  py::object answer = instance_.attr("is_ready")();
  if (PyCoro_CheckExact(answer.ptr())) answer = loop_.Await(answer);
  if (!py::isinstance<py::bool_>(answer)) {
    throw module::ModelException("is_ready() of model '" + launch_.name + "' must return a bool, not " +
                                 py::str(py::type::of(answer)).cast<std::string>());
  }
  return answer.cast<bool>();
}

void PythonModel::Finalize() {
  loop_.Stop();
  if (!instance_ || !py::hasattr(instance_, "finalize")) return;
  try {
    instance_.attr("finalize")();
  } catch (py::error_already_set& error) {
    py::module_::import(kUtilities).attr("Logger").attr("log_info")(error.what());
  }
}

std::string PythonModel::Describe() const {
  py::dict facts;
  facts["instance"] = launch_.name;
  facts["pid"] = getpid();
  // The module `platform` would say the same and takes milliseconds to import.
  facts["python"] = py::module_::import("sys").attr("version").attr("split")().attr("__getitem__")(0);
  facts["numpy"] = VersionOfNumpy();
  facts["stub"] = build::kVersion;
  facts["import_seconds"] = import_time_.count();
  facts["initialize_seconds"] = initialize_time_.count();
  facts["triton"] = abi::NameOf(wire_.ServerRelease());
  return "envpack-stub " + py::module_::import("json").attr("dumps")(facts).cast<std::string>();
}

}  // namespace envpack::model
