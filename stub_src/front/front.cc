#include "front/front.h"

#include <exception>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>
#include <variant>

#include "channel/heartbeat.h"
#include "channel/refusal.h"
#include "front/instance.h"
#include "front/recovery/death.h"
#include "front/recovery/deputy.h"
#include "front/settings.h"
#include "front/starter.h"
#include "two_halves/body.h"

namespace envpack::front {

namespace {

// The server waits for the completed configuration without a timeout and without checking the heartbeat, so
// the front answers in any case.
int Complete(Deputy& deputy, channel::Heartbeat& heartbeat, Assignment assignment) {
  abi::AutoCompleteAnswer answer;
  try {
    const Settings settings = Settings::Of(assignment.command);
    Starter starter(heartbeat, deputy.UsesEnvironment(), settings.is_warm);
    CrashOutput crash;
    assignment.report = std::make_shared<channel::Report>();
    assignment.crash_output = crash.file();
    assignment.journal = std::make_shared<abi::JournalFile>();
    deputy.region().Watch(assignment.journal->journal()->ledger.undo_log());
    const auto worker = starter.Start(assignment);
    const std::string end = crash.DescribeEnd(worker->Wait(), assignment.launch.model_file);
    answer = assignment.report->Answer().value_or(FailureOf(*assignment.report, end));
  } catch (const std::exception& error) {  // a setting, or no process can be created
    answer = abi::Failure{error.what()};
  }
  deputy.region().CheckAll();
  const auto& journal = assignment.journal;
  if (const auto held = journal ? journal->journal()->ledger.Held() : std::nullopt) {
    deputy.region().ReleaseFor(*held);  // so that there is room for the answer
  }
  deputy.AnswerAutoComplete(answer);
  if (std::holds_alternative<abi::Failure>(answer)) return 0;
  channel::RefuseEverything(deputy, "this process only completes a configuration");
  return 0;
}

int Serve(const abi::Launch& launch, Deputy& deputy, channel::Heartbeat& heartbeat) {
  // The first command determines what the worker does.
  abi::Command first = deputy.Receive();
  while (std::holds_alternative<abi::UnknownCommand>(first)) first = deputy.Receive();
  if (std::holds_alternative<abi::AutoCompleteCommand>(first)) {
    return Complete(deputy, heartbeat, {launch, deputy.release(), std::move(first)});
  }
  if (!std::holds_alternative<abi::InitializeCommand>(first)) {
    channel::Refuse(deputy, first, "the model has not been initialized");
    return 0;
  }
  return RunInstance(deputy, heartbeat, {launch, deputy.release(), std::move(first)});
}

}  // namespace

int Run(const abi::Launch& launch, abi::Release release) {
  std::unique_ptr<Deputy> deputy;
  try {
    deputy = std::make_unique<Deputy>(launch, release);
  } catch (const std::invalid_argument& error) {  // this stub was built for other releases
    return channel::RefuseLaunch(launch, release, error.what());
  }
  // First, so that no later error leaves the server waiting for the startup message.
  deputy->Announce();
  std::optional<channel::Heartbeat> heartbeat;
  try {
    heartbeat.emplace(*deputy, launch.server_pid);
  } catch (const std::system_error& error) {
    return channel::RefuseStart(*deputy, error.what());
  }
  return Serve(launch, *deputy, *heartbeat);
}

}  // namespace envpack::front
