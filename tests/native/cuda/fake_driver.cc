// A fake CUDA driver for machines without a GPU: libcuda.so.1 with the functions that the stub and its tests
// use, implemented with host memory. "Device memory" is shared memory, so another process can open a handle
// as on a GPU. The fake is as strict as a driver may be: it rejects calls without a current context, opening
// a handle twice, and closing a foreign pointer.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace {

constexpr int kSuccess = 0, kInvalidValue = 1, kInvalidDevice = 101, kInvalidContext = 201,
              kAlreadyMapped = 208, kInvalidHandle = 400;
constexpr int kDevices = 2;

struct IpcHandle {
  char name[64];
};

struct Mapping {
  std::string name;
  std::size_t size;
};

std::mutex mutex;
bool initialized = false;
std::map<std::uint64_t, Mapping> allocations;  // created by this process
std::map<std::uint64_t, Mapping> opened;       // created by other processes
int contexts[kDevices];
int streams = 0;
int synchronized_streams = 0;
thread_local std::vector<void*> current;

bool HasContext() { return initialized && !current.empty(); }

std::uint64_t Map(const std::string& name, std::size_t* size, int flags) {
  const int file = shm_open(name.c_str(), flags, 0600);
  if (file < 0) return 0;
  struct stat facts{};
  if (*size != 0 && ftruncate(file, static_cast<off_t>(*size)) != 0) return 0;
  fstat(file, &facts);
  *size = static_cast<std::size_t>(facts.st_size);
  void* base = mmap(nullptr, *size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  return base == MAP_FAILED ? 0 : reinterpret_cast<std::uint64_t>(base);
}

}  // namespace

extern "C" {

int cuInit(unsigned flags) {
  initialized = flags == 0;
  return initialized ? kSuccess : kInvalidValue;
}

int cuGetErrorString(int status, const char** text) {
  *text = status == kAlreadyMapped   ? "fake: already mapped"
          : status == kInvalidHandle ? "fake: invalid handle"
          : status == kInvalidDevice ? "fake: invalid device"
                                     : "fake: error";
  return kSuccess;
}

int cuDeviceGet(int* device, int ordinal) {
  *device = ordinal;
  return ordinal >= 0 && ordinal < kDevices ? kSuccess : kInvalidDevice;
}

int cuDevicePrimaryCtxRetain(void** context, int device) {
  ++contexts[device];
  *context = &contexts[device];
  return kSuccess;
}

int cuCtxPushCurrent_v2(void* context) {
  current.push_back(context);
  return kSuccess;
}

int cuCtxPopCurrent_v2(void** context) {
  if (current.empty()) return kInvalidContext;
  *context = current.back();
  current.pop_back();
  return kSuccess;
}

int cuMemAlloc_v2(std::uint64_t* pointer, std::size_t size) {
  if (!HasContext()) return kInvalidContext;
  static int number = 0;
  const std::lock_guard lock(mutex);
  const std::string name = "/envpack_cuda_" + std::to_string(getpid()) + "_" + std::to_string(number++);
  *pointer = Map(name, &size, O_RDWR | O_CREAT | O_EXCL);
  if (*pointer == 0) return kInvalidValue;
  allocations[*pointer] = {name, size};
  return kSuccess;
}

int cuMemFree_v2(std::uint64_t pointer) {
  const std::lock_guard lock(mutex);
  const auto found = allocations.find(pointer);
  if (found == allocations.end()) return kInvalidValue;
  munmap(reinterpret_cast<void*>(pointer), found->second.size);
  shm_unlink(found->second.name.c_str());
  allocations.erase(found);
  return kSuccess;
}

int cuIpcGetMemHandle(IpcHandle* handle, std::uint64_t pointer) {
  const std::lock_guard lock(mutex);
  const auto found = allocations.find(pointer);
  if (found == allocations.end()) return kInvalidValue;
  std::memset(handle, 0, sizeof(*handle));
  found->second.name.copy(handle->name, sizeof(handle->name) - 1);
  return kSuccess;
}

int cuIpcOpenMemHandle_v2(std::uint64_t* pointer, IpcHandle handle, unsigned flags) {
  if (!HasContext()) return kInvalidContext;
  if (flags != 1) return kInvalidValue;
  const std::lock_guard lock(mutex);
  const std::string name(handle.name, strnlen(handle.name, sizeof(handle.name)));
  for (const auto& mapping : opened) {
    if (mapping.second.name == name) return kAlreadyMapped;
  }
  std::size_t size = 0;
  *pointer = name.rfind("/envpack_cuda_", 0) == 0 ? Map(name, &size, O_RDWR) : 0;
  if (*pointer == 0) return kInvalidHandle;
  opened[*pointer] = {name, size};
  return kSuccess;
}

int cuIpcCloseMemHandle(std::uint64_t pointer) {
  if (!HasContext()) return kInvalidContext;
  const std::lock_guard lock(mutex);
  const auto found = opened.find(pointer);
  if (found == opened.end()) return kInvalidValue;
  munmap(reinterpret_cast<void*>(pointer), found->second.size);
  opened.erase(found);
  return kSuccess;
}

int cuMemcpy(std::uint64_t to, std::uint64_t from, std::size_t size) {
  if (!HasContext()) return kInvalidContext;
  std::memcpy(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), size);
  return kSuccess;
}

int cuStreamCreate(void** stream, unsigned) {
  if (!HasContext()) return kInvalidContext;
  *stream = reinterpret_cast<void*>(static_cast<std::uintptr_t>(0x1000 + ++streams));
  return kSuccess;
}

int cuStreamSynchronize(void* stream) {
  if (!HasContext()) return kInvalidContext;
  if (stream != nullptr) ++synchronized_streams;
  return kSuccess;
}

// For the tests: what this process has done.
int fake_cuda_open_handles() {
  const std::lock_guard lock(mutex);
  return static_cast<int>(opened.size());
}
int fake_cuda_contexts(int device) { return contexts[device]; }
int fake_cuda_synchronized_streams() { return synchronized_streams; }
}
