// The half of the stub that embeds Python: a shared library inside the executable, which main.cc loads after
// libpython.
#include "body.h"

#include <pybind11/pybind11.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>
#include <variant>

#include "abi/launch.h"
#include "abi/wire.h"
#include "channel/guarded_child.h"
#include "channel/heartbeat.h"
#include "channel/refusal.h"
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
std::optional<std::string> StartPython(const abi::Launch& launch, const abi::Wire& wire) {
  if (wire.UsesEnvironment()) RestoreLibraryPath(wire.ServerRelease());
  try {
    model::StartInterpreter(wire.UsesEnvironment(), launch.name);
    return std::nullopt;
  } catch (const model::InterpreterError& error) {
    std::fprintf(stderr, "envpack stub: %s\n", error.what());
    return channel::StartFailure(error.what());
  }
}

// Runs in the child.
void CompleteInThisProcess(const abi::Launch& launch, abi::Wire& wire, const std::string& config,
                           channel::Report& report) {
  report.Reach(channel::Step::kStart);
  if (const auto failure = StartPython(launch, wire)) {
    report.Finish(abi::Failure{*failure});
    return;
  }
  report.Reach(channel::Step::kImport);
  const auto on_imported = [&] { report.Reach(channel::Step::kComplete); };
  report.Finish(model::CompleteConfig(launch, wire, config, on_imported));
  model::ShutDownInterpreter();
}

// The server waits for the completed configuration without a timeout and without checking the heartbeat. So a
// child runs the model, and this process, which runs no Python, answers in any case.
abi::AutoCompleteAnswer CompleteInChild(const abi::Launch& launch, abi::Wire& wire,
                                        channel::Heartbeat& heartbeat, const std::string& config) {
  const auto start = [&] {
    const auto paused = heartbeat.Pause();
    return std::make_unique<channel::GuardedChild>(
        [&](channel::Report& report) { CompleteInThisProcess(launch, wire, config, report); });
  };
  try {
    return start()->Wait();
  } catch (const std::exception& error) {
    return abi::Failure{error.what()};
  }
}

// Each returns when the server needs this process no longer.
void ServeAutoComplete(const abi::Launch& launch, abi::Wire& wire, channel::Heartbeat& heartbeat,
                       const abi::AutoCompleteCommand& command) {
  const abi::AutoCompleteAnswer answer = CompleteInChild(launch, wire, heartbeat, command.model_config);
  wire.AnswerAutoComplete(answer);
  if (std::holds_alternative<abi::Failure>(answer)) return;
  channel::RefuseEverything(wire, "this process only completes a configuration");
}

void ServeInstance(const abi::Launch& launch, abi::Wire& wire, abi::Command first) {
  if (const auto failure = StartPython(launch, wire)) {
    if (channel::Refuse(wire, first, *failure)) channel::RefuseEverything(wire, *failure);
    return;
  }
  model::ServeCommands(launch, wire, std::move(first));
  model::ShutDownInterpreter();
}

void Serve(const abi::Launch& launch, abi::Wire& wire, channel::Heartbeat& heartbeat) {
  // Before Python starts, since the command determines in which process. The server sends it immediately
  // after the startup message, so starting Python meanwhile would not save time.
  abi::Command first = wire.Receive();
  while (std::holds_alternative<abi::UnknownCommand>(first)) first = wire.Receive();
  if (const auto* command = std::get_if<abi::AutoCompleteCommand>(&first)) {
    ServeAutoComplete(launch, wire, heartbeat, *command);
  } else {
    ServeInstance(launch, wire, std::move(first));
  }
}

int Main(int argc, const char* const* argv, abi::Release release) {
  const abi::Launch launch = abi::ParseLaunch(argc, argv);
  std::unique_ptr<abi::Wire> wire;
  try {
    wire = abi::OpenWire(launch, release, cuda::TheGpu());
  } catch (const std::invalid_argument& error) {  // this stub was built for other releases
    return channel::RefuseLaunch(launch, release, error.what());
  }
  // First, so that no later error leaves the server waiting for the startup message.
  wire->Announce();
  std::optional<channel::Heartbeat> heartbeat;
  try {
    heartbeat.emplace(*wire, launch.server_pid);
  } catch (const std::system_error& error) {
    return channel::RefuseStart(*wire, std::string("a thread cannot be created: ") + error.what());
  }
  Serve(launch, *wire, *heartbeat);
  // Without destructors of libraries, and without joining threads that the model has left running.
  FlushOutput();
  _exit(0);
}

}  // namespace

}  // namespace envpack

extern "C" __attribute__((visibility("default"))) int envpack_stub_run(int argc, const char* const* argv,
                                                                       envpack::abi::Release release) {
  try {
    return envpack::Main(argc, argv, release);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "envpack stub: %s\n", error.what());
    envpack::FlushOutput();
    _exit(1);
  }
}
