#include "channel/refusal.h"

#include <memory>
#include <variant>

#include "base/output.h"
#include "channel/heartbeat.h"

namespace envpack::channel {

// After a failed start the server waits for this process to end, and sends no requests.
bool Refuse(abi::Session& server, const abi::Command& command, const std::string& reason) {
  const abi::Failure failure{reason};
  if (std::holds_alternative<abi::AutoCompleteCommand>(command)) {
    server.AnswerAutoComplete(failure);
  } else if (std::holds_alternative<abi::InitializeCommand>(command)) {
    server.AnswerInitialize(failure);
  } else if (std::holds_alternative<abi::FinalizeCommand>(command)) {
    server.AnswerFinalize();
  } else {
    return true;
  }
  return false;
}

std::string StartFailure(const std::string& reason) {
  return "Failed to preinitialize Python stub: " + reason;
}

std::string RequestFailure(const std::string& instance, const std::string& reason) {
  return "Failed to process the request(s) for model '" + instance + "', message: " + reason;
}

void RefuseEverything(abi::Session& server, const std::string& reason) {
  while (Refuse(server, server.Receive(), reason)) {
  }
}

int RefuseStart(abi::Session& server, const std::string& reason) {
  const std::string failure = StartFailure(reason);
  Print(failure);
  RefuseEverything(server, failure);
  return 1;
}

int RefuseLaunch(const abi::Launch& launch, abi::Release release, const std::string& reason) {
  std::unique_ptr<abi::FrontSession> server;
  std::unique_ptr<Heartbeat> heartbeat;
  const auto start = [&] {
    server = std::make_unique<abi::FrontSession>(launch, release, abi::MakeJournal());
    server->Announce();
    heartbeat = std::make_unique<Heartbeat>(*server, launch.server_pid);
  };
  if (!abi::Attempt(start) || server) return RefuseStart(*server, reason);
  Print(reason);  // there is no region to answer through
  return 1;
}

}  // namespace envpack::channel
