// NVIDIA's driver, loaded when something needs it: one stub serves machines with and without a GPU.
//
// Only what is used here is declared; names and values are those of the driver's public interface. The stub
// keeps to the driver, not the runtime, because the driver is one library that every machine with a GPU has
// and that every model's framework shares.
#pragma once

#include <cstddef>
#include <cstdint>

#include "abi/gpu_memory.h"

namespace envpack::cuda {

using Status = int;  // CUresult, 0 is success
using Device = int;  // CUdevice
using Context = void*;
using Stream = void*;
using Pointer = std::uint64_t;  // CUdeviceptr, which is also a host address under unified addressing

inline constexpr unsigned kLazyPeerAccess = 1;     // CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS
inline constexpr unsigned kNonBlockingStream = 1;  // CU_STREAM_NON_BLOCKING

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

// Loads and initialises it at the first call. Throws abi::GpuFailed, at each call, if there is none.
const Driver& TheDriver();

// Throws abi::GpuFailed with `what` and the driver's words unless `status` is success.
void Check(Status status, const char* what);

}  // namespace envpack::cuda
