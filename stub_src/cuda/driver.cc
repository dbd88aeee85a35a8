#include "cuda/driver.h"

#include <dlfcn.h>

#include <string>

namespace envpack::cuda {

namespace {

constexpr const char* kLibrary = "libcuda.so.1";

template <typename Function>
void Find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (function == nullptr) throw abi::GpuFailed(std::string(kLibrary) + " has no " + name);
}

Driver Load() {
  void* library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) throw abi::GpuFailed(std::string("there is no CUDA driver: ") + dlerror());
  Driver driver{};
  Find(library, "cuInit", driver.init);
  Find(library, "cuGetErrorString", driver.error_string);
  Find(library, "cuDeviceGet", driver.device_get);
  Find(library, "cuDevicePrimaryCtxRetain", driver.primary_context_retain);
  Find(library, "cuCtxPushCurrent_v2", driver.context_push);
  Find(library, "cuCtxPopCurrent_v2", driver.context_pop);
  Find(library, "cuIpcOpenMemHandle_v2", driver.ipc_open);
  Find(library, "cuIpcCloseMemHandle", driver.ipc_close);
  Find(library, "cuMemcpy", driver.copy);
  Find(library, "cuStreamCreate", driver.stream_create);
  Find(library, "cuStreamSynchronize", driver.stream_synchronize);
  if (const Status status = driver.init(0); status != 0) {
    throw abi::GpuFailed("the CUDA driver could not be initialised: error " + std::to_string(status));
  }
  return driver;
}

}  // namespace

const Driver& TheDriver() {
  static const Driver driver = Load();  // tried again at the next call if it throws
  return driver;
}

void Check(Status status, const char* what) {
  if (status == 0) return;
  const char* text = nullptr;
  TheDriver().error_string(status, &text);
  throw abi::GpuFailed(std::string(what) + ": " + (text != nullptr ? text : "unknown CUDA error"));
}

}  // namespace envpack::cuda
