// The half of the stub that embeds Python: a shared library that main.cc carries inside itself and loads once
// libpython has been found.
#include "body.h"

#include <pybind11/pybind11.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "abi/launch.h"
#include "abi/wire.h"
#include "channel/guarded_child.h"
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

// Starts Python, or returns why that is impossible.
std::optional<std::string> StartPython(const abi::Launch& launch, const abi::Wire& wire) {
  if (wire.UsesEnvironment()) RestoreLibraryPath();
  try {
    model::StartInterpreter(wire.UsesEnvironment(), launch.name);
    return std::nullopt;
  } catch (const model::InterpreterFailed& error) {
    std::fprintf(stderr, "envpack stub: %s\n", error.what());
    return error.what();
  }
}

// The child's part.
void Complete(const abi::Launch& launch, abi::Wire& wire, const std::string& config,
              channel::Report& report) {
  report.Reach(channel::Step::kStart);
  if (const auto failure = StartPython(launch, wire)) {
    report.Finish(abi::Failure{*failure});
    return;
  }
  report.Reach(channel::Step::kImport);
  const auto imported = [&] { report.Reach(channel::Step::kComplete); };
  report.Finish(model::Complete(launch, wire, config, imported));
  model::EndInterpreter();
}

// The server waits for the completed configuration without a limit and never looks whether we still live. So
// a child runs the model, and this process, in which there is no Python, answers whatever becomes of it. The
// heartbeat holds nothing that the child needs.
abi::AutoCompleteAnswer CompleteInChild(const abi::Launch& launch, abi::Wire& wire,
                                        const std::string& config) {
  try {
    const channel::GuardedChild child(
        [&](channel::Report& report) { Complete(launch, wire, config, report); });
    return child.Wait();
  } catch (const std::exception& error) {
    return abi::Failure{error.what()};
  }
}

// Each returns when the server has no more use for this process.
void ServeAutoComplete(const abi::Launch& launch, abi::Wire& wire, const abi::AutoCompleteCommand& command) {
  const abi::AutoCompleteAnswer answer = CompleteInChild(launch, wire, command.model_config);
  wire.AnswerAutoComplete(answer);
  if (std::holds_alternative<abi::Failure>(answer)) return;
  channel::RefuseEverything(wire, "this process was started to complete a configuration only");
}

void ServeInstance(const abi::Launch& launch, abi::Wire& wire, abi::Command first) {
  if (const auto failure = StartPython(launch, wire)) {
    if (channel::Refuse(wire, first, *failure)) channel::RefuseEverything(wire, *failure);
    return;
  }
  model::Live(launch, wire, std::move(first));
  model::EndInterpreter();
}

int Main(int argc, const char* const* argv, abi::Release release) {
  const abi::Launch launch = abi::ParseLaunch(argc, argv);
  const std::unique_ptr<abi::Wire> wire = abi::OpenWire(launch, release, cuda::TheGpu());
  // First, so that nothing that goes wrong later can leave the server waiting for a sign of life.
  wire->Announce();
  const channel::Heartbeat heartbeat(*wire, launch.server_pid);
  // Before Python starts, since the command decides where. The server sends it as soon as it has the sign of
  // life, so there is nothing to gain from starting Python meanwhile.
  abi::Command first = wire->Receive();
  while (std::holds_alternative<abi::UnknownCommand>(first)) first = wire->Receive();
  if (const auto* command = std::get_if<abi::AutoCompleteCommand>(&first)) {
    ServeAutoComplete(launch, *wire, *command);
  } else {
    ServeInstance(launch, *wire, std::move(first));
  }
  // Without the destructors of libraries and without joining threads that the model has left behind.
  std::fflush(nullptr);
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
    std::fflush(nullptr);
    _exit(1);
  }
}
