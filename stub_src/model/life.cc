#include "model/life.h"

#include <pybind11/pybind11.h>

#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "channel/log_forwarder.h"
#include "channel/streams.h"
#include "channel/unasked.h"
#include "model/attempt.h"
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

// Runs `action` with the GIL released: everything that waits for the server does.
template <typename Action>
auto Unlocked(Action action) {
  const py::gil_scoped_release unlocked;
  return action();
}

class Life {
 public:
  Life(const abi::Launch& launch, abi::Wire& wire)
      : launch_(launch), wire_(wire), streams_(std::make_shared<channel::Streams>(wire)) {}

  ~Life() {
    model_.reset();
    module::SetServerLink({});
    module::SetLogSink(stderr_log_);
    // The last lines need the server, which must not be waited for with the GIL held.
    Unlocked([this] { forwarder_.reset(); });
  }

  void Run(abi::Command command) {
    while (std::visit([this](auto& which) { return Serve(which); }, command)) {
      command = Unlocked([this] { return wire_.Receive(); });
    }
  }

 private:
  // Each serves one command; false ends the life.
  bool Serve(abi::InitializeCommand& command);
  bool Serve(abi::ExecuteCommand& command);
  bool Serve(abi::FinalizeCommand&);
  bool Serve(abi::AutoCompleteCommand&);
  bool Serve(abi::UnknownCommand&) { return true; }

  PythonModel& Model();
  void StartHelpers();
  std::optional<abi::Failure> Initialize(const abi::InitializeCommand& command);

  const abi::Launch& launch_;
  abi::Wire& wire_;
  const std::shared_ptr<channel::Streams> streams_;
  channel::StderrLog stderr_log_;
  std::unique_ptr<channel::LogForwarder> forwarder_;
  std::shared_ptr<PythonModel> model_;
  const std::shared_ptr<Readiness> readiness_ = std::make_shared<Readiness>();
};

// The server asks this of a new process only, and then another function serves it.
bool Life::Serve(abi::AutoCompleteCommand&) {
  Unlocked([this] { wire_.AnswerAutoComplete(abi::Failure{"the model has been initialized already"}); });
  return false;
}

// The server reads our queue from now on, so logging goes there.
void Life::StartHelpers() {
  channel::ServeUnaskedMessages(
      wire_, streams_, [readiness = readiness_](auto question) { readiness->Take(std::move(question)); });
  forwarder_ = std::make_unique<channel::LogForwarder>(wire_);
  module::SetLogSink(*forwarder_);
  module::SetServerLink({&wire_, launch_.name, nullptr});
}

std::optional<abi::Failure> Life::Initialize(const abi::InitializeCommand& command) {
  return Attempt([&] {
    model_ = std::make_shared<PythonModel>(launch_, wire_);
    model_->Initialize(command.arguments);
    readiness_->Watch(model_);
    if (model_->HasReadiness()) wire_.OfferReadiness();
    module::SetServerLink({&wire_, launch_.name, streams_});
    forwarder_->Write({abi::LogLevel::kVerbose, model_->Describe(), launch_.model_file, 0});
  });
}

bool Life::Serve(abi::InitializeCommand& command) {
  StartHelpers();
  const abi::InitializeAnswer answer = Initialize(command);
  Unlocked([&] { wire_.AnswerInitialize(answer); });
  // After a failed start the server does not finalize, it waits for this process to end.
  return !answer.has_value();
}

PythonModel& Life::Model() {
  if (!model_) throw module::ModelException("The model has not been initialized.");
  return *model_;
}

bool Life::Serve(abi::ExecuteCommand& command) {
  Execution execution(std::move(command.requests), launch_.name, wire_);
  abi::ExecuteAnswer answer;
  const auto fail = [&](const abi::Failure& failure) {
    answer = execution.Fail("Failed to process the request(s) for model '" + launch_.name +
                            "', message: " + failure.text);
  };
  if (const auto failure = Attempt([&] { answer = Model().Execute(execution); })) fail(*failure);
  const auto send = [&] {
    execution.Settle();
    wire_.AnswerExecute(answer);
  };
  if (const auto failure = Attempt([&] { Unlocked(send); })) {
    // The responses did not fit into the region. The error does.
    fail(*failure);
    Unlocked([&] { wire_.AnswerExecute(answer); });
  }
  execution.Finish();
  return true;
}

// From here on the server runs no more requests for us, and it has to hear of what we do not want any more
// before it gets the answer.
bool Life::Serve(abi::FinalizeCommand&) {
  module::SetServerLink({&wire_, launch_.name, nullptr});
  Unlocked([this] {
    streams_->End();
    wire_.AnswerFinalize();
  });
  if (model_) model_->Finalize();
  EndIfForked();
  return false;
}

}  // namespace

abi::AutoCompleteAnswer Complete(const abi::Launch& launch, abi::Wire& wire, const std::string& config,
                                 const std::function<void()>& imported) {
  abi::AutoCompleteAnswer answer;
  auto failure = Attempt([&] {
    PythonModel model(launch, wire);
    imported();
    answer = model.AutoComplete(config);
  });
  if (failure) return *std::move(failure);
  return answer;
}

void Live(const abi::Launch& launch, abi::Wire& wire, abi::Command first) {
  Life(launch, wire).Run(std::move(first));
}

}  // namespace envpack::model
