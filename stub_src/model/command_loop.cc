#include "model/command_loop.h"

#include <pybind11/pybind11.h>
#include <unistd.h>

#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <utility>
#include <variant>

#include "base/output.h"
#include "base/threads.h"
#include "channel/log_forwarder.h"
#include "channel/streams.h"
#include "model/execution.h"
#include "model/interpreter.h"
#include "module/conversions.h"
#include "module/error.h"
#include "module/logger.h"
#include "module/server_link.h"

namespace py = pybind11;

namespace envpack::model {

namespace {

// Answers the server's readiness probes, from 26.03 on, with the model's is_ready(): in a separate thread,
// since that may take long, and neither requests nor responses of streams may wait for it.
class Readiness : public std::enable_shared_from_this<Readiness> {
 public:
  // Sets the model. Probes fail after its destruction. Needs the GIL.
  void SetModel(std::weak_ptr<PythonModel> model) { model_ = std::move(model); }

  // Queues a probe. Returns at once. Call it without the GIL.
  void Add(abi::ReadinessProbe probe) {
    const std::lock_guard lock(mutex_);
    probes_.push_back(std::move(probe));
    if (is_serving_) return;
    // Without a thread the next probe tries again.
    StartThread("pbstub-ready", [self = shared_from_this()] { self->Serve(); }).detach();
    is_serving_ = true;
  }

 private:
  // Returns when no probe is left. The next probe starts another thread.
  void Serve() {
    for (;;) {
      std::unique_lock lock(mutex_);
      if (probes_.empty()) {
        is_serving_ = false;
        return;
      }
      const auto probe = std::move(probes_.front());
      probes_.pop_front();
      lock.unlock();
      try {
        probe(Check());
      } catch (const std::exception& error) {
        Print("cannot answer a readiness probe of the server", error.what());
      }
    }
  }

  abi::ReadinessAnswer Check() {
    const pybind11::gil_scoped_acquire locked;
    const auto model = model_.lock();
    if (!model) return abi::Failure{"the model has been finalized"};
    bool is_ready = false;
    if (auto failure = CallModel([&] { is_ready = model->IsReady(); })) return *std::move(failure);
    return is_ready;
  }

  std::weak_ptr<PythonModel> model_;  // guarded by the GIL
  std::mutex mutex_;                  // guards the members below
  std::deque<abi::ReadinessProbe> probes_;
  bool is_serving_ = false;
};

// Raises the server's counter of the restarts of this model. It stays in the server when this process dies,
// so it keeps its value for the next one. Throws abi::ServerError.
void CountRestart(abi::Wire& wire, const std::string& labels) {
  if (!wire.Has(abi::Feature::kMetrics)) return;
  const abi::ServerAddress family = wire.CreateMetricFamily(
      {"envpack_restarts_total", "Number of times that a model's process has died and was replaced",
       abi::MetricKind::kCounter});
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
    module::SetLogForwarder(nullptr);
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
  std::optional<abi::Failure> Initialize(const abi::InitializeCommand& command) {
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

  // From now on the server reads the stub's queue, so log lines go there.
  void StartHelpers() {
    ServeServerMessages();
    forwarder_ = std::make_shared<channel::LogForwarder>(wire_);
    module::SetLogForwarder(forwarder_);
    module::SetServerLink({&wire_, launch_.name, nullptr});
  }

  // Starts the thread that processes what the server sends without a request. The server never ends these
  // messages, so the thread runs until the process ends.
  void ServeServerMessages() {
    const auto handle = [streams = streams_, readiness = readiness_](abi::ServerMessage message) {
      if (auto* response = std::get_if<abi::InferResponse>(&message)) {
        streams->Deliver(std::move(*response));
      } else {
        readiness->Add(std::get<abi::ReadinessProbe>(std::move(message)));
      }
    };
    const auto serve = [&wire = wire_, handle] {
      try {
        while (wire.ServeServerMessage(handle)) {
        }
      } catch (const std::exception& error) {
        Print("no further message of the server can be received", error.what());
      }
    };
    StartThread("pbstub-rx", serve).detach();
  }

  // In the server's log and metrics.
  void ReportRestart() {
    forwarder_->Write({abi::LogLevel::kWarning,
                       "'" + launch_.name + "' was restarted (" + std::to_string(assignment_.restarts) +
                           ", process " + std::to_string(getpid()) + "): " + assignment_.last_death,
                       launch_.model_file, 0});
    auto arguments = std::get<abi::InitializeCommand>(assignment_.command).arguments;
    py::dict labels;
    labels["model"] = arguments["model_name"];
    labels["version"] = arguments["model_version"];
    const std::string text = module::ToJson(labels);
    module::Unlocked([&] { abi::Attempt([&] { CountRestart(wire_, text); }); });
  }

  // Each processes one command. False ends the loop.
  bool Serve(abi::ExecuteCommand& command) {
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

  // From now on the server runs no requests of this stub. The streams must end before the answer is sent.
  bool Serve(abi::FinalizeCommand&) {
    module::SetServerLink({&wire_, launch_.name, nullptr});
    module::Unlocked([this] {
      streams_->End();
      wire_.AnswerFinalize();
    });
    if (model_) model_->Finalize();
    ExitIfForked();
    return false;
  }

  // The server sends these to a new stub only, where the front receives them.
  bool Serve(abi::InitializeCommand&) { return true; }
  bool Serve(abi::AutoCompleteCommand&) { return true; }
  bool Serve(abi::UnknownCommand&) { return true; }

  PythonModel& Model() {
    if (!model_) throw module::ModelException("The model has not been initialized.");
    return *model_;
  }

  const Assignment& assignment_;
  const abi::Launch& launch_;
  abi::Wire& wire_;
  const std::shared_ptr<channel::Streams> streams_;
  std::shared_ptr<channel::LogForwarder> forwarder_;
  std::shared_ptr<PythonModel> model_;
  const std::shared_ptr<Readiness> readiness_ = std::make_shared<Readiness>();
};

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
