#include "front/front.h"

#include <exception>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <system_error>
#include <variant>

#include "channel/heartbeat.h"
#include "channel/refusal.h"
#include "front/instance.h"
#include "front/recovery/death.h"
#include "front/recovery/deputy.h"
#include "front/settings.h"
#include "front/starter.h"

namespace envpack::front {

namespace {

// The server waits for the completed configuration without a timeout and without checking the heartbeat, so
// the front answers in any case.
int Complete(const abi::Launch& launch, Deputy& deputy, channel::Heartbeat& heartbeat,
             const abi::Command& command, const Work& work) {
  abi::AutoCompleteAnswer answer;
  std::optional<abi::JournalFile> journal;
  try {
    const Settings settings = Settings::Of(command);
    Starter starter(heartbeat, work, deputy.UsesEnvironment(), settings);
    channel::Report report;
    CrashOutput crash;
    journal.emplace();
    deputy.region().Watch(journal->journal()->ledger.undo_log());
    const auto worker = starter.Start({launch, deputy.release(), command, report, journal->journal(),
                                       journal->descriptor(), crash.descriptor(), false, 0, ""});
    const int status = worker->Wait();
    const std::string end = DescribeEnd(status, crash, launch.model_file);
    answer = report.Answer().value_or(FailureOf(report, end));
  } catch (const std::exception& error) {  // a setting, or no process can be created
    answer = abi::Failure{error.what()};
  }
  deputy.region().CheckAll();
  if (const auto held = journal ? journal->journal()->ledger.Held() : std::nullopt) {
    deputy.region().ReleaseFor(*held);  // so that there is room for the answer
  }
  deputy.AnswerAutoComplete(answer);
  if (std::holds_alternative<abi::Failure>(answer)) return 0;
  channel::RefuseEverything(deputy, "this process only completes a configuration");
  return 0;
}

int Serve(const abi::Launch& launch, Deputy& deputy, channel::Heartbeat& heartbeat, const Work& work) {
  // The first command determines what the worker does.
  abi::Command first = deputy.Receive();
  while (std::holds_alternative<abi::UnknownCommand>(first)) first = deputy.Receive();
  if (std::holds_alternative<abi::AutoCompleteCommand>(first)) {
    return Complete(launch, deputy, heartbeat, first, work);
  }
  if (!std::holds_alternative<abi::InitializeCommand>(first)) {
    channel::Refuse(deputy, first, "the model has not been initialized");
    return 0;
  }
  return Instance(launch, deputy, heartbeat, first, work).Run();
}

}  // namespace

int Run(const abi::Launch& launch, abi::Release release, const Work& work) {
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
  return Serve(launch, *deputy, *heartbeat, work);
}

}  // namespace envpack::front
