#include "module/module.h"

#include <pybind11/embed.h>

#include "module/error.h"
#include "module/inference.h"
#include "module/logger.h"
#include "module/metrics.h"
#include "module/model_control.h"
#include "module/request.h"
#include "module/response.h"
#include "module/response_sender.h"
#include "module/shared_memory.h"
#include "module/tensor.h"

namespace py = pybind11;

namespace envpack::module {

namespace {

// What models reach through triton_python_backend_utils; the rest they get from objects, or never need by
// name.
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

void Bind(py::module_& module) {
  BindErrors(module);
  BindTensor(module);
  BindResponse(module);
  BindResponseSender(module);
  BindInference(module);
  BindRequest(module);
  BindLogger(module);
  BindMetrics(module);
  BindModelControl(module);
  BindSharedMemory(module);
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

void CompleteUtilities(py::module_& utilities, abi::Wire& wire, const std::string& model_directory) {
  auto ours = py::module_::import(kName);
  for (const char* name : kPublicNames) utilities.attr(name) = ours.attr(name);
  // What the utilities of later servers have, so that a model hears what its server lacks, not what a file
  // does.
  for (const auto& [name, flags] : kReleaseFlags) {
    if (!py::hasattr(utilities, name)) utilities.attr(name) = flags;
  }
  utilities.attr("get_model_dir") = py::cpp_function([model_directory] { return model_directory; });
  ExposeSharedMemory(ours, wire);
}

}  // namespace envpack::module
