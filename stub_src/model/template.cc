#include "model/template.h"

#include <pybind11/pybind11.h>
#include <unistd.h>

#include <cstdio>
#include <string>
#include <utility>
#include <variant>

#include "model/fork_safety.h"
#include "model/interpreter.h"
#include "module/error.h"
#include "warm/template_service.h"

namespace py = pybind11;

namespace envpack::model {

namespace {

void PrintColdStart(const std::string& name, const std::string& reason) {
  std::fprintf(stderr, "envpack stub: '%s' starts cold: %s\n", name.c_str(), reason.c_str());
}

// Objects that exist now are never examined again: the collector writes to those that it examines, and pages
// that nobody writes to stay shared.
void Freeze() {
  const auto gc = py::module_::import("gc");
  gc.attr("collect")();
  if (py::hasattr(gc, "freeze")) gc.attr("freeze")();  // from Python 3.7 on
}

// From Python 3.7 on, the module `random` does this by itself after a fork.
void SeedGenerators() {
  for (const char* name : {"random", "numpy.random"}) {
    if (const py::object module = module::FindModule(name)) module.attr("seed")();
  }
}

bool InitializeFor(const Assignment& first, PythonModel& model) {
  const ForkSafety safety;
  const auto& command = std::get<abi::InitializeCommand>(first.command);
  std::optional<std::string> obstacle;
  if (const auto failure = CallModel([&] { model.Initialize(command.arguments); })) {
    obstacle = "initialize() fails in the template: " + failure->text;
  } else {
    obstacle = FindShortage();
    if (!obstacle) obstacle = safety.FindObstacle();
  }
  if (obstacle) {
    PrintColdStart(first.launch.name, *obstacle);
    return false;
  }
  Freeze();
  return true;
}

}  // namespace

std::optional<WarmStart> ServeAsTemplate(const TemplateTask& task) {
  const pid_t front = getppid();
  warm::TemplateService service(Descriptor(task.listener), static_cast<pid_t>(task.launch.server_pid), front);
  const ForkSafety safety;
  std::unique_ptr<PythonModel> model;
  if (CallModel([&] { model = std::make_unique<PythonModel>(task.launch); })) return std::nullopt;
  if (const auto shortage = FindShortage()) {
    PrintColdStart(task.launch.name, *shortage);
    return std::nullopt;
  }
  if (const auto obstacle = safety.FindObstacle()) {
    PrintColdStart(task.launch.name, *obstacle);
    return WarmStart{service.BecomeWorker(), std::move(model)};
  }
  Freeze();
  Assignment assignment =
      service.Serve({ForkInterpreter, [&](const Assignment& first) { return InitializeFor(first, *model); }});
  SeedGenerators();
  model->BecomeInstance(assignment.launch.name, true);
  return WarmStart{std::move(assignment), std::move(model)};
}

}  // namespace envpack::model
