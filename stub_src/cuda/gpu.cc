#include "cuda/gpu.h"

#include <dlfcn.h>

#include <string>

namespace envpack::cuda {

namespace {

// Names and values are those of the driver's public interface.
using Status = int;  // CUresult, 0 is success
using Device = int;  // CUdevice

constexpr unsigned kLazyPeerAccess = 1;     // CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS
constexpr unsigned kNonBlockingStream = 1;  // CU_STREAM_NON_BLOCKING

struct Driver {
  Status (*init)(unsigned flags);
  Status (*error_string)(Status status, const char** text);
  Status (*device_get)(Device* device, int ordinal);
  Status (*primary_context_retain)(Context* context, Device device);
  Status (*context_push)(Context context);
  Status (*context_pop)(Context* context);
  Status (*ipc_open)(Pointer* pointer, abi::IpcHandle handle, unsigned flags);
  Status (*ipc_close)(Pointer pointer);
  Status (*copy)(Pointer to, Pointer from, std::size_t size);
  Status (*stream_create)(Stream* stream, unsigned flags);
  Status (*stream_synchronize)(Stream stream);
};

constexpr const char* kLibrary = "libcuda.so.1";

template <typename Function>
void Find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (function == nullptr) throw abi::GpuError(std::string(kLibrary) + " has no " + name);
}

Driver Load() {
  void* library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) throw abi::GpuError(std::string("there is no CUDA driver: ") + dlerror());
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
    throw abi::GpuError("the CUDA driver could not be initialised: error " + std::to_string(status));
  }
  return driver;
}

const Driver& TheDriver() {
  static const Driver driver = Load();  // retried at the next call if it throws
  return driver;
}

// Throws abi::GpuError with `what` and the driver's message unless `status` is success.
void Check(Status status, const char* what) {
  if (status == 0) return;
  const char* text = nullptr;
  TheDriver().error_string(status, &text);
  throw abi::GpuError(std::string(what) + ": " + (text != nullptr ? text : "unknown CUDA error"));
}

Pointer Address(const void* pointer) { return reinterpret_cast<Pointer>(pointer); }
void* Address(Pointer pointer) { return reinterpret_cast<void*>(pointer); }

// Makes a context current for a scope, then restores the previous one.
class Current {
 public:
  explicit Current(Context context) { Check(TheDriver().context_push(context), "CUDA context"); }
  ~Current() {
    Context popped = nullptr;
    TheDriver().context_pop(&popped);
  }
  Current(Current&&) = delete;
};

}  // namespace

Context Gpu::ContextOf(std::int64_t device) {
  const std::lock_guard lock(contexts_mutex_);
  const auto found = contexts_.find(device);
  if (found != contexts_.end()) return found->second;
  Device which = 0;
  Check(TheDriver().device_get(&which, static_cast<int>(device)), "CUDA device");
  Context context = nullptr;
  Check(TheDriver().primary_context_retain(&context, which), "CUDA context");
  return contexts_[device] = context;
}

void Gpu::AttachPool(std::int64_t device, const abi::IpcHandle& pool) {
  const std::lock_guard lock(mutex_);
  const Current current(ContextOf(device));
  Pointer base = 0;
  Check(TheDriver().ipc_open(&base, pool, kLazyPeerAccess), "Failed to open the server's CUDA memory pool");
  pools_[device] = base;
}

std::shared_ptr<void> Gpu::Open(const abi::DeviceMemory& memory) {
  const std::lock_guard lock(mutex_);
  if (!memory.in_pool) return OpenAllocation(memory);
  const auto pool = pools_.find(memory.device);
  if (pool == pools_.end()) {
    throw abi::GpuError("the server's CUDA memory pool of device " + std::to_string(memory.device) +
                        " is not open here");
  }
  return {Address(pool->second + memory.offset), [](void*) {}};
}

std::shared_ptr<void> Gpu::OpenAllocation(const abi::DeviceMemory& memory) {
  const Key key(memory.device, memory.allocation);
  auto found = allocations_.find(key);
  if (found == allocations_.end()) {
    const Current current(ContextOf(memory.device));
    Pointer base = 0;
    Check(TheDriver().ipc_open(&base, memory.allocation, kLazyPeerAccess),
          "Failed to open memory of the server's GPU");
    found = allocations_.emplace(key, Allocation{base, 0}).first;
  }
  ++found->second.users;
  return {Address(found->second.base + memory.offset), [this, key](void*) { CloseAllocation(key); }};
}

void Gpu::CloseAllocation(const Key& key) noexcept {
  const std::lock_guard lock(mutex_);
  const auto found = allocations_.find(key);
  if (--found->second.users > 0) return;
  try {
    const Current current(ContextOf(key.first));
    TheDriver().ipc_close(found->second.base);
  } catch (const abi::GpuError&) {
    // The device has failed. The driver removes the mapping when the process ends.
  }
  allocations_.erase(found);
}

void Gpu::Copy(std::int64_t device, void* to, const void* from, std::size_t size) {
  const Current current(ContextOf(device));
  // With unified addressing the driver derives both locations from the addresses.
  Check(TheDriver().copy(Address(to), Address(from), size), "Failed to copy a tensor of a GPU");
  Check(TheDriver().stream_synchronize(nullptr), "Failed to copy a tensor of a GPU");
}

Stream Gpu::StreamOf(std::int64_t device) {
  const std::lock_guard lock(mutex_);
  const auto found = streams_.find(device);
  if (found != streams_.end()) return found->second;
  const Current current(ContextOf(device));
  Stream stream = nullptr;
  Check(TheDriver().stream_create(&stream, kNonBlockingStream),
        "Failed to create a CUDA stream for a DLPack call");
  return streams_[device] = stream;
}

void Gpu::Synchronize(std::int64_t device) {
  const Stream stream = StreamOf(device);
  const Current current(ContextOf(device));
  Check(TheDriver().stream_synchronize(stream),
        ("Failed to synchronize CUDA device with id " + std::to_string(device)).c_str());
}

Gpu& TheGpu() {
  // Never destroyed: tensors may outlive everything else in the process.
  static Gpu& gpu = *std::make_unique<Gpu>().release();
  return gpu;
}

}  // namespace envpack::cuda
