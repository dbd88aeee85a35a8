// The half of the stub that embeds Python: a shared library that main.cc carries inside itself and loads once
// libpython has been found.
#include "body.h"

#include <pybind11/pybind11.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <string>

#include "abi/launch.h"
#include "abi/wire.h"
#include "channel/heartbeat.h"
#include "channel/refusal.h"
#include "cuda/gpu.h"
#include "model/interpreter.h"
#include "model/life.h"

namespace envpack {

namespace {

// The server puts <environment>/lib in front of LD_LIBRARY_PATH to start us. The loader has read it; programs
// that the model starts must see the server's own value.
void RestoreLibraryPath() {
  const char* value = std::getenv("LD_LIBRARY_PATH");
  if (value == nullptr) return;
  const std::string path(value);
  const std::size_t colon = path.find(':');
  if (colon != std::string::npos) setenv("LD_LIBRARY_PATH", path.c_str() + colon + 1, 1);
}

// Returns when the server has no more use for this process.
void Run(const abi::Launch& launch, abi::Wire& wire) {
  if (wire.UsesEnvironment()) RestoreLibraryPath();
  try {
    model::StartInterpreter(wire.UsesEnvironment());
  } catch (const model::InterpreterFailed& error) {
    std::fprintf(stderr, "envpack stub: %s\n", error.what());
    channel::RefuseEverything(wire, error.what());
    return;
  }
  model::Live(launch, wire);
  model::EndInterpreter();
}

int Main(int argc, const char* const* argv) {
  const abi::Launch launch = abi::ParseLaunch(argc, argv);
  const std::unique_ptr<abi::Wire> wire = abi::OpenWire(launch, cuda::TheGpu());
  // First, so that nothing that goes wrong later can leave the server waiting for a sign of life.
  wire->Announce();
  const channel::Heartbeat heartbeat(*wire, launch.server_pid);
  Run(launch, *wire);
  // Without the destructors of libraries and without joining threads that the model has left behind.
  std::fflush(nullptr);
  _exit(0);
}

}  // namespace

}  // namespace envpack

extern "C" __attribute__((visibility("default"))) int envpack_stub_run(int argc, const char* const* argv) {
  try {
    return envpack::Main(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "envpack stub: %s\n", error.what());
    std::fflush(nullptr);
    _exit(1);
  }
}
