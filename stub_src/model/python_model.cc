#include "model/python_model.h"

#include <pybind11/stl.h>
#include <unistd.h>

#include <filesystem>
#include <utility>
#include <vector>

#include "module/conversions.h"
#include "module/error.h"
#include "module/module.h"
#include "two_halves/build_info.h"

namespace py = pybind11;
namespace fs = std::filesystem;

namespace envpack::model {

namespace {

constexpr int kMaxDepth = 16;  // a chain of exceptions can be a cycle

struct Target {
  fs::path file;
  std::vector<fs::path> search;  // appended to sys.path, in order
  std::string module;
};

// A folder in the last argument is a backend whose model.py serves all its models. If the folder has no
// model.py, it is a backend directory with another name than "python", and the model's own file is used.
Target FindTarget(const abi::Launch& launch) {
  const fs::path runtime(launch.runtime_directory);
  if (launch.runtime_directory != "DEFAULT" && fs::exists(runtime / "model.py")) {
    return {runtime / "model.py", {runtime, launch.backend_directory}, "model"};
  }
  const fs::path file(launch.model_file);
  const fs::path version = file.parent_path();
  return {file,
          {version, version.parent_path(), launch.backend_directory},
          version.filename().string() + "." + file.stem().string()};
}

void Check(const Target& target) {
  if (target.file.extension() != ".py") {
    throw module::ModelException("Model name must end with '.py'. Model name is \"" +
                                 target.file.filename().string() + "\".");
  }
  if (!fs::exists(target.file)) {
    throw module::ModelException("Python model file not found in '" + target.file.string() + "'");
  }
}

// The first exception of the chain that Python shows. When NumPy fails to import its libraries, it raises
// general advice; the loader's message, which names the missing file, is further down the chain.
std::string FirstError(const py::error_already_set& error) {
  py::object first = error.value();
  for (int depth = 0; depth < kMaxDepth; ++depth) {
    py::object below = first.attr("__cause__");
    if (below.is_none() && !first.attr("__suppress_context__").cast<bool>())
      below = first.attr("__context__");
    if (below.is_none()) break;
    first = below;
  }
  return module::TextOf(py::type::of(first).attr("__name__")) + ": " + module::TextOf(py::str(first));
}

py::module_ ImportUtilities() {
  try {
    py::module_::import("numpy");
  } catch (py::error_already_set& error) {
    if (!error.matches(PyExc_ImportError)) throw;
    const std::string prefix = module::TextOf(py::module_::import("sys").attr("prefix"));
    throw module::ModelException("NumPy, which every model needs, cannot be imported from '" + prefix +
                                 "': " + FirstError(error) + "\n\n" + module::TextOf(error));
  }
  return py::module_::import("triton_python_backend_utils");
}

// Throws module::ModelException if the file is missing or not a .py file.
py::module_ ImportModel(const abi::Launch& launch) {
  const Target target = FindTarget(launch);
  Check(target);
  auto path = py::module_::import("sys").attr("path");
  for (const fs::path& folder : target.search) path.attr("append")(folder.string());
  py::module_ utilities = ImportUtilities();
  module::CompleteUtilities(utilities, fs::path(launch.model_file).parent_path().string());
  return py::module_::import(target.module.c_str());
}

// An attribute that the model may lack, else null. py::hasattr() and py::getattr() take whatever its
// __getattr__ or a property raises for a missing attribute.
py::object AttributeOf(const py::object& object, const char* name) {
  try {
    return object.attr(name);
  } catch (const py::error_already_set& error) {
    if (!error.matches(PyExc_AttributeError)) throw;
    return {};
  }
}

constexpr const char* kUtilities = "triton_python_backend_utils";

}  // namespace

PythonModel::PythonModel(const abi::Launch& launch) : instance_name_(launch.name), file_(launch.model_file) {
  const auto started = std::chrono::steady_clock::now();
  class_ = ImportModel(launch).attr("TritonPythonModel");
  import_time_ = std::chrono::steady_clock::now() - started;
}

std::string PythonModel::AutoComplete(const std::string& model_config) {
  const auto config_class = py::module_::import(kUtilities).attr("ModelConfig");
  py::object config = config_class(model_config);
  if (const py::object complete = AttributeOf(class_, "auto_complete_config")) {
    config = complete(config);
    if (!py::isinstance(config, config_class)) {
      throw module::ModelException("auto_complete_config function in model '" + instance_name_ +
                                   "' must return a valid pb.ModelConfig object.");
    }
  }
  return module::ToJson(config.attr("_model_config"));
}

void PythonModel::Initialize(const std::map<std::string, std::string>& arguments) {
  const auto started = std::chrono::steady_clock::now();
  py::object instance = class_();
  if (const py::object initialize = AttributeOf(instance, "initialize")) initialize(arguments);
  instance_ = std::move(instance);
  initialize_time_ = std::chrono::steady_clock::now() - started;
}

abi::ExecuteAnswer PythonModel::Execute(Execution& execution) {
  const py::object execute = AttributeOf(instance_, "execute");
  if (!execute || execute.is_none()) {
    throw module::ModelException("Python model " + file_ + " does not implement `execute` method.");
  }
  return execution.Run(execute, loop_);
}

bool PythonModel::HasReadiness() const { return static_cast<bool>(AttributeOf(instance_, "is_ready")); }

bool PythonModel::IsReady() {
  py::object answer = instance_.attr("is_ready")();
  if (EventLoop::IsCoroutine(answer)) answer = loop_.Await(answer);
  if (!py::isinstance<py::bool_>(answer)) {
    throw module::ModelException("is_ready() of model '" + instance_name_ + "' must return a bool, not " +
                                 module::TypeOf(answer));
  }
  return answer.cast<bool>();
}

void PythonModel::Finalize() {
  loop_.Stop();
  if (!instance_) return;
  try {
    if (const py::object finalize = AttributeOf(instance_, "finalize")) finalize();
  } catch (py::error_already_set& error) {
    py::module_::import(kUtilities).attr("Logger").attr("log_info")(module::TextOf(error));
  }
}

std::string PythonModel::Describe(abi::Release server) const {
  py::dict facts;
  facts["instance"] = instance_name_;
  facts["pid"] = getpid();
  // The module `platform` gives the same and takes milliseconds to import.
  facts["python"] = py::module_::import("sys").attr("version").attr("split")().attr("__getitem__")(0);
  const py::object numpy = module::FindModule("numpy");
  facts["numpy"] = numpy ? py::object(numpy.attr("__version__")) : py::none();
  facts["stub"] = build::kVersion;
  facts["import_seconds"] = import_time_.count();
  facts["initialize_seconds"] = initialize_time_.count();
  facts["triton"] = abi::NameOf(server);
  facts["start"] = is_warm_ ? "warm" : "cold";
  return "envpack-stub " + module::ToJson(facts);
}

}  // namespace envpack::model
