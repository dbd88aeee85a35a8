// The half of the stub that embeds Python: a shared library in the executable, loaded after libpython.
#include "two_halves/body.h"

#include <pybind11/pybind11.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <exception>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>

#include "abi/wire.h"
#include "base/files.h"
#include "base/output.h"
#include "channel/refusal.h"
#include "channel/report.h"
#include "cuda/gpu.h"
#include "local/local_wire.h"
#include "model/command_loop.h"
#include "model/interpreter.h"
#include "model/template.h"
#include "module/module.h"
#include "module/server_link.h"

namespace envpack {

namespace {

// From this release on the server prepends the folder twice.
constexpr abi::Release kFirstWithTwoFolders = 2508;

// To start the stub, the server prepends <environment>/lib to LD_LIBRARY_PATH. The loader has read it by now;
// programs that the model starts must get the server's value.
void RestoreLibraryPath(abi::Release release) {
  std::string path = Variable("LD_LIBRARY_PATH").value_or("");
  if (path.empty()) return;
  const std::string folder = path.substr(0, path.find(':') + 1);
  path.erase(0, folder.size());
  if (release >= kFirstWithTwoFolders && path.compare(0, folder.size(), folder) == 0)
    path.erase(0, folder.size());
  setenv("LD_LIBRARY_PATH", path.c_str(), 1);
}

// Starts Python. Returns the reason if it cannot start.
std::optional<abi::Failure> StartPython(bool uses_environment, abi::Release release) {
  if (uses_environment) RestoreLibraryPath(release);
  auto failure = model::StartInterpreter(uses_environment);
  if (failure) {
    Print(failure->text);
    failure->text = channel::StartFailure(failure->text);
  }
  return failure;
}

void Complete(const Assignment& assignment, const abi::AutoCompleteCommand& command,
              std::unique_ptr<model::PythonModel> imported) {
  channel::Report& report = *assignment.report;
  report.Reach(channel::Step::kImport);
  const auto on_imported = [&] { report.Reach(channel::Step::kComplete); };
  report.Finish(model::CompleteConfig(assignment.launch, imported, command.model_config, on_imported));
}

void Serve(const Assignment& assignment, abi::Wire& wire, std::unique_ptr<model::PythonModel> imported) {
  const auto tell_front = [&](const abi::InitializeAnswer& failure) {
    if (failure) return assignment.report->Finish(*failure);
    abi::Journal& journal = *assignment.journal->journal();
    journal.Reach(abi::Journal::kReady);
    while (journal.stage == abi::Journal::kReady) {
      journal.AwaitEndOf(abi::Journal::kReady, std::chrono::milliseconds(500));
    }
  };
  model::ServeCommands(assignment, wire, std::move(imported), tell_front);
}

// With Python started. Ends the process when the server needs it no longer.
[[noreturn]] void Work(const Assignment& assignment, abi::Wire& wire,
                       std::unique_ptr<model::PythonModel> imported) {
  if (assignment.may_run_out_of_time) model::PrintTracebacksOn(TracebackSignal());
  module::ConnectModule(wire);
  if (const auto* command = std::get_if<abi::AutoCompleteCommand>(&assignment.command)) {
    Complete(assignment, *command, std::move(imported));
  } else {
    Serve(assignment, wire, std::move(imported));
  }
  model::ShutDownInterpreter();
  ExitFlushed(0);
}

std::unique_ptr<abi::Wire> Connect(const Assignment& assignment) {
  return abi::OpenWire(assignment.launch, assignment.release, cuda::TheGpu(), assignment.journal->journal());
}

// Reports why a worker ends, for example that it has reached a limit that the model has set.
template <typename Action>
void RunReporting(channel::Report& report, Action action) {
  const auto failure = abi::Attempt(action);
  if (!failure) return;
  const bool is_start = report.Reached() == channel::Step::kStart;
  report.Finish(abi::Failure{is_start ? channel::StartFailure(failure->text) : failure->text});
  throw std::runtime_error(failure->text);
}

void Run(const Assignment& assignment) {
  RunReporting(*assignment.report, [&] {
    assignment.report->Reach(channel::Step::kStart);
    const auto wire = Connect(assignment);
    model::NameCrashes(assignment.launch.name, assignment.crash_output->number());
    if (const auto failure = StartPython(wire->UsesEnvironment(), wire->ServerRelease())) {
      return assignment.report->Finish(*failure);
    }
    Work(assignment, *wire, nullptr);
  });
}

// A failure to start Python is reported by the workers, which are then started without the template.
void Run(const TemplateTask& task) {
  model::NameCrashes(task.launch.name, STDERR_FILENO);
  if (StartPython(task.uses_environment, task.release)) return;
  auto start = model::ServeAsTemplate(task);
  if (!start) return;
  const Assignment& assignment = start->assignment;
  RunReporting(*assignment.report, [&] {
    model::NameCrashes(assignment.launch.name, assignment.crash_output->number());
    Work(assignment, *Connect(assignment), std::move(start->model));
  });
}

// One process completes the configuration and runs the instance.
void ServeLocally(local::LocalWire& wire) {
  std::unique_ptr<model::PythonModel> imported;
  for (;;) {
    const abi::Command command = module::Unlocked([&] { return wire.Receive(); });
    if (const auto* completion = std::get_if<abi::AutoCompleteCommand>(&command)) {
      wire.AnswerAutoComplete(
          model::CompleteConfig(wire.launch(), imported, completion->model_config, [] {}));
    } else if (std::holds_alternative<abi::InitializeCommand>(command)) {
      Assignment assignment{wire.launch(), wire.ServerRelease(), command};
      assignment.report = std::make_shared<channel::Report>();
      if (imported != nullptr) imported->BecomeInstance(wire.launch().name, false);
      const auto answer = [&](const abi::InitializeAnswer& failure) { wire.AnswerInitialize(failure); };
      return model::ServeCommands(assignment, wire, std::move(imported), answer);
    } else {
      return wire.AnswerFinalize();
    }
  }
}

void Run(const LocalTask& task) {
  const auto wire = local::OpenLocalWire(task.socket, cuda::TheGpu());
  model::NameCrashes(wire->launch().name, STDERR_FILENO);
  if (const auto failure = StartPython(wire->UsesEnvironment(), wire->ServerRelease())) {
    return channel::RefuseEverything(*wire, failure->text);
  }
  module::ConnectModule(*wire);
  ServeLocally(*wire);
  model::ShutDownInterpreter();
  ExitFlushed(0);  // before the wire's destructor, since threads of the model may use it
}

}  // namespace

}  // namespace envpack

extern "C" __attribute__((visibility("default"))) int envpack_stub_run(const envpack::Task& task) {
  try {
    std::visit([](const auto* kind) { envpack::Run(*kind); }, task);
    envpack::ExitFlushed(0);
  } catch (const std::exception& error) {
    envpack::Print(error.what());
    envpack::ExitFlushed(1);
  }
}
