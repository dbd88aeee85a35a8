// The half of the stub that embeds Python: a shared library inside the executable, which a worker loads after
// libpython.
#include "body.h"

#include <pybind11/pybind11.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <optional>
#include <string>
#include <variant>

#include "abi/wire.h"
#include "channel/refusal.h"
#include "channel/report.h"
#include "cuda/gpu.h"
#include "model/command_loop.h"
#include "model/interpreter.h"
#include "output.h"

namespace envpack {

namespace {

// From this release on the server prepends the folder twice.
constexpr abi::Release kFirstWithTwoFolders = 2508;

// To start the stub, the server prepends <environment>/lib to LD_LIBRARY_PATH. The loader has read it by now;
// programs that the model starts must get the server's value.
void RestoreLibraryPath(abi::Release release) {
  const char* value = std::getenv("LD_LIBRARY_PATH");
  if (value == nullptr) return;
  std::string path(value);
  const std::string folder = path.substr(0, path.find(':') + 1);
  path.erase(0, folder.size());
  if (release >= kFirstWithTwoFolders && path.compare(0, folder.size(), folder) == 0)
    path.erase(0, folder.size());
  setenv("LD_LIBRARY_PATH", path.c_str(), 1);
}

// Starts Python. Returns the reason if it cannot start.
std::optional<abi::Failure> StartPython(const Assignment& assignment, const abi::Wire& wire) {
  if (wire.UsesEnvironment()) RestoreLibraryPath(wire.ServerRelease());
  try {
    model::StartInterpreter(wire.UsesEnvironment(), assignment.launch.name, assignment.crash_output);
    if (assignment.may_run_out_of_time) model::PrintTracebacksOn(TracebackSignal());
    return std::nullopt;
  } catch (const model::InterpreterError& error) {
    std::fprintf(stderr, "envpack stub: %s\n", error.what());
    return abi::Failure{channel::StartFailure(error.what())};
  }
}

void Complete(const Assignment& assignment, abi::Wire& wire, const abi::AutoCompleteCommand& command) {
  channel::Report& report = assignment.report;
  report.Reach(channel::Step::kImport);
  const auto on_imported = [&] { report.Reach(channel::Step::kComplete); };
  report.Finish(model::CompleteConfig(assignment.launch, wire, command.model_config, on_imported));
}

// Returns when the server needs this process no longer.
void Work(const Assignment& assignment, abi::Wire& wire) {
  assignment.report.Reach(channel::Step::kStart);
  if (const auto failure = StartPython(assignment, wire)) {
    assignment.report.Finish(*failure);
    return;
  }
  if (const auto* command = std::get_if<abi::AutoCompleteCommand>(&assignment.command)) {
    Complete(assignment, wire, *command);
  } else {
    model::ServeCommands(assignment, wire);
  }
  model::ShutDownInterpreter();
}

int Main(const Assignment& assignment) {
  try {
    const auto wire =
        abi::OpenWire(assignment.launch, assignment.release, cuda::TheGpu(), assignment.journal);
    Work(assignment, *wire);
    // Without destructors of libraries, and without joining threads that the model has left running.
    FlushOutput();
    _exit(0);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "envpack stub: %s\n", error.what());
    FlushOutput();
    _exit(1);
  }
}

}  // namespace

}  // namespace envpack

extern "C" __attribute__((visibility("default"))) int envpack_stub_run(
    const envpack::Assignment& assignment) {
  return envpack::Main(assignment);
}
