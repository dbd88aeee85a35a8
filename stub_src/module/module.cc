#include "module/module.h"

#include <map>

#include "abi/values.h"
#include "module/error.h"
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
      throw py::type_error("the content of file '" + TextOf(py::str(path)) + "' must be bytes");
    }
    contents.emplace(path.cast<std::string>(), content.cast<std::string>());
  }
  return contents;
}

// CallServer() for model control, if the server has that feature.
template <typename Call>
auto CallModelControl(const std::string& prefix, Call call) {
  return CallServer(prefix, [&](abi::Wire& wire) {
    Require(wire, abi::Feature::kModelControl, "Model control (load, unload, readiness) needs");
    return call(wire);
  });
}

void LoadModel(const std::string& name, const std::string& config, const py::object& files) {
  const abi::ModelToLoad model{name, config, FilesOf(name, files)};
  CallModelControl("Failed to load model: ", [&](abi::Wire& wire) { wire.LoadModel(model); });
}

void UnloadModel(const std::string& name, bool unload_dependents) {
  CallModelControl("Failed to unload model: ",
                   [&](abi::Wire& wire) { wire.UnloadModel(name, unload_dependents); });
}

bool IsModelReady(const std::string& name, const std::string& version) {
  return CallModelControl("Failed to check model readiness: ",
                          [&](abi::Wire& wire) { return wire.IsModelReady(name, version); });
}

// load_model, unload_model and is_model_ready.
void BindModelControl(py::module_& module) {
  const auto name = py::arg("model_name").none(false);
  module.def("load_model", &LoadModel, name, py::arg("config") = "", py::arg("files") = py::none());
  module.def("unload_model", &UnloadModel, name, py::arg("unload_dependents") = false);
  module.def("is_model_ready", &IsModelReady, name, py::arg("model_version") = "");
}

// c_python_backend_utils.shared_memory: the free bytes of the region, for tests that detect leaks.
struct SharedMemory {
  abi::Wire* wire;
};

void BindSharedMemory(py::module_& module) {
  py::class_<SharedMemory>(module, "SharedMemory").def("free_memory", [](const SharedMemory& self) {
    return Unlocked([&] { return self.wire->FreeBytes(); });
  });
}

// The names that models use through triton_python_backend_utils. Other classes are reached through objects.
constexpr const char* kPublicNames[] = {
    "TritonError",
    "TritonModelException",
    "Tensor",
    "InferenceRequest",
    "InferenceResponse",
    "Logger",
    "PreferredMemory",
    "TRITONSERVER_MEMORY_GPU",
    "TRITONSERVER_MEMORY_CPU",
    "MetricFamily",
    "load_model",
    "unload_model",
    "is_model_ready",
};

constexpr std::pair<const char*, std::uint32_t> kReleaseFlags[] = {
    {"TRITONSERVER_REQUEST_RELEASE_ALL", abi::kReleaseAll},
    {"TRITONSERVER_REQUEST_RELEASE_RESCHEDULE", abi::kReleaseReschedule},
};

// pybind11 gives each class a method for casts between extensions of different builds. No other extension has
// these classes, and dir() would show it to users.
void HideConduits(const py::module_& module) {
  constexpr const char* kConduit = "_pybind11_conduit_v1_";
  for (const auto& [name, value] : module.attr("__dict__").cast<py::dict>()) {
    if (!py::isinstance<py::type>(value)) continue;
    if (value.attr("__dict__").contains(kConduit)) py::delattr(value, kConduit);
  }
}

void Bind(py::module_& module) {
  BindErrors(module);
  BindTensor(module);
  BindResponses(module);
  BindRequest(module);
  BindLogger(module);
  BindMetrics(module);
  BindModelControl(module);
  BindSharedMemory(module);
  HideConduits(module);
}

PyObject* Init() {
  static PyModuleDef definition{};
  try {
    auto module = py::module_::create_extension_module(kName, nullptr, &definition);
    Bind(module);
    return module.release().ptr();
  } catch (py::error_already_set& error) {
    error.restore();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_ImportError, error.what());
  }
  return nullptr;
}

}  // namespace

void RegisterModule() { PyImport_AppendInittab(kName, &Init); }

void CompleteUtilities(py::module_& utilities, const std::string& model_directory) {
  auto ours = py::module_::import(kName);
  for (const char* name : kPublicNames) utilities.attr(name) = ours.attr(name);
  // Names of later servers' utilities: with them a model gets the error that its server lacks the feature.
  for (const auto& [name, flags] : kReleaseFlags) {
    if (!py::hasattr(utilities, name)) utilities.attr(name) = flags;
  }
  utilities.attr("get_model_dir") = py::cpp_function([model_directory] { return model_directory; });
}

void ConnectModule(abi::Wire& wire) {
  py::module_::import(kName).attr("shared_memory") = SharedMemory{&wire};
}

}  // namespace envpack::module
