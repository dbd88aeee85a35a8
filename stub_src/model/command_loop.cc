#include "model/command_loop.h"

#include <pybind11/pybind11.h>
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "base/threads.h"
#include "channel/log_forwarder.h"
#include "channel/streams.h"
#include "model/execution.h"
#include "model/interpreter.h"
#include "model/python_model.h"
#include "model/readiness.h"
#include "module/error.h"
#include "module/logger.h"
#include "module/server_link.h"

namespace py = pybind11;

namespace envpack::model {

namespace {

// In JSON. Names of folders that the server accepts have no control characters.
std::string Quoted(const std::map<std::string, std::string>& arguments, const char* name) {
  const auto found = arguments.find(name);
  std::string text = "\"";
  for (const char c : found != arguments.end() ? found->second : std::string()) {
    if (c == '"' || c == '\\') text += '\\';
    text += c;
  }
  return text + "\"";
}

// Raises the server's counter of this model by one, by which people notice that its process has died. The
// objects stay in the server when this process dies, so the counter keeps its value for the next one. Throws
// abi::ServerError.
void CountRestart(abi::Wire& wire, const std::map<std::string, std::string>& arguments) {
  if (!wire.Has(abi::Feature::kMetrics)) return;
  const abi::ServerAddress family = wire.CreateMetricFamily(
      {"envpack_restarts_total", "Number of times that a model's process has died and was replaced",
       abi::MetricKind::kCounter});
  const std::string labels = "{\"model\":" + Quoted(arguments, "model_name") +
                             ",\"version\":" + Quoted(arguments, "model_version") + "}";
  wire.ChangeMetric(wire.CreateMetric(family, {labels, {}}), abi::MetricChange::kIncrement, 1);
}

class CommandLoop {
 public:
  CommandLoop(const Assignment& assignment, abi::Wire& wire, std::unique_ptr<PythonModel> imported)
      : assignment_(assignment),
        launch_(assignment.launch),
        wire_(wire),
        streams_(std::make_shared<channel::Streams>(wire)),
        model_(std::move(imported)) {}

  ~CommandLoop() {
    model_.reset();
    module::SetServerLink({});
    if (!forwarder_) return;
    module::SetLogSink(std::make_shared<channel::StderrLog>());
    // Sending the last log lines waits for the server, so the GIL must not be held.
    module::Unlocked([this] { forwarder_->Stop(); });
  }

  void Run(const InitializedHandler& on_initialized) {
    const auto failure = Initialize(std::get<abi::InitializeCommand>(assignment_.command));
    module::Unlocked([&] { on_initialized(failure); });
    if (failure) return;
    abi::Command command;
    do command = module::Unlocked([this] { return wire_.Receive(); });
    while (std::visit([this](auto& which) { return Serve(which); }, command));
  }

 private:
  // Each processes one command. False ends the loop.
  bool Serve(abi::ExecuteCommand& command);
  bool Serve(abi::FinalizeCommand&);
  // The server sends these to a new stub only, where the front receives them.
  bool Serve(abi::InitializeCommand&) { return true; }
  bool Serve(abi::AutoCompleteCommand&) { return true; }
  bool Serve(abi::UnknownCommand&) { return true; }

  PythonModel& Model();
  void ServeServerMessages();
  void StartHelpers();
  std::optional<abi::Failure> Initialize(const abi::InitializeCommand& command);
  void ReportRestart();

  const Assignment& assignment_;
  const abi::Launch& launch_;
  abi::Wire& wire_;
  const std::shared_ptr<channel::Streams> streams_;
  std::shared_ptr<channel::LogForwarder> forwarder_;
  std::shared_ptr<PythonModel> model_;
  const std::shared_ptr<Readiness> readiness_ = std::make_shared<Readiness>();
};

// Starts the thread that processes what the server sends without a request. The server never ends these
// messages, so the thread runs until the process ends.
void CommandLoop::ServeServerMessages() {
  const auto handle = [streams = streams_, readiness = readiness_](abi::ServerMessage message) {
    if (auto* response = std::get_if<abi::InferResponse>(&message)) {
      streams->Deliver(std::move(*response));
    } else {
      readiness->Add(std::get<std::unique_ptr<abi::ReadinessProbe>>(std::move(message)));
    }
  };
  const auto serve = [&wire = wire_, handle] {
    try {
      while (wire.ServeServerMessage(handle)) {
      }
    } catch (const std::exception& error) {
      std::fprintf(stderr, "envpack stub: no further message of the server can be received: %s\n",
                   error.what());
    }
  };
  StartThread("pbstub-rx", serve).detach();
}

// From now on the server reads the stub's queue, so log lines go there.
void CommandLoop::StartHelpers() {
  ServeServerMessages();
  forwarder_ = std::make_shared<channel::LogForwarder>(wire_);
  module::SetLogSink(forwarder_);
  module::SetServerLink({&wire_, launch_.name, nullptr});
}

std::optional<abi::Failure> CommandLoop::Initialize(const abi::InitializeCommand& command) {
  return CallModel([&] {
    assignment_.report->Reach(channel::Step::kImport);
    StartHelpers();
    if (!model_) model_ = std::make_shared<PythonModel>(launch_);
    assignment_.report->Reach(channel::Step::kInitialize);
    if (!model_->IsInitialized()) model_->Initialize(command.arguments);
    readiness_->SetModel(model_);
    if (model_->HasReadiness()) wire_.EnableReadinessProbes();
    module::SetServerLink({&wire_, launch_.name, streams_});
    forwarder_->Write(
        {abi::LogLevel::kVerbose, model_->Describe(wire_.ServerRelease()), launch_.model_file, 0});
    if (assignment_.restarts > 0) ReportRestart();
  });
}

// In the server's log and metrics.
void CommandLoop::ReportRestart() {
  forwarder_->Write({abi::LogLevel::kWarning,
                     "'" + launch_.name + "' was restarted (" + std::to_string(assignment_.restarts) +
                         ", process " + std::to_string(getpid()) + "): " + assignment_.last_death,
                     launch_.model_file, 0});
  const auto& command = std::get<abi::InitializeCommand>(assignment_.command);
  module::Unlocked([&] { abi::Attempt([&] { CountRestart(wire_, command.arguments); }); });
}

PythonModel& CommandLoop::Model() {
  if (!model_) throw module::ModelException("The model has not been initialized.");
  return *model_;
}

bool CommandLoop::Serve(abi::ExecuteCommand& command) {
  std::optional<abi::ReleaseTogether> together;  // destroyed after the requests
  Execution execution(std::move(command.requests), launch_.name, wire_);
  abi::ExecuteAnswer answer;
  const auto fail = [&](const abi::Failure& failure) {
    answer = execution.Fail(failure.text);
    module::LogFailure(std::get<abi::ExecuteFailure>(answer).text);
  };
  if (const auto failure = CallModel([&] { answer = Model().Execute(execution); })) fail(*failure);
  together.emplace();
  const auto send = [&] {
    execution.EndUses();
    wire_.AnswerExecute(answer);
  };
  if (const auto failure = CallModel([&] { module::Unlocked(send); })) {
    // The responses do not fit into the region, but the error does.
    fail(*failure);
    module::Unlocked([&] { wire_.AnswerExecute(answer); });
  }
  execution.Finish();
  return true;
}

// From now on the server runs no requests of this stub. The streams must be ended before the answer is sent.
bool CommandLoop::Serve(abi::FinalizeCommand&) {
  module::SetServerLink({&wire_, launch_.name, nullptr});
  module::Unlocked([this] {
    streams_->End();
    wire_.AnswerFinalize();
  });
  if (model_) model_->Finalize();
  ExitIfForked();
  return false;
}

}  // namespace

abi::AutoCompleteAnswer CompleteConfig(const abi::Launch& launch, std::unique_ptr<PythonModel>& model,
                                       const std::string& config, const std::function<void()>& on_imported) {
  abi::AutoCompleteAnswer answer;
  auto failure = CallModel([&] {
    if (model == nullptr) model = std::make_unique<PythonModel>(launch);
    on_imported();
    answer = model->AutoComplete(config);
  });
  if (failure) return *std::move(failure);
  return answer;
}

void ServeCommands(const Assignment& assignment, abi::Wire& wire, std::unique_ptr<PythonModel> imported,
                   const InitializedHandler& on_initialized) {
  CommandLoop(assignment, wire, std::move(imported)).Run(on_initialized);
}

}  // namespace envpack::model
