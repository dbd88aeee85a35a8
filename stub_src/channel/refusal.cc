#include "channel/refusal.h"

#include <cstdio>
#include <memory>
#include <variant>

#include "channel/heartbeat.h"

namespace envpack::channel {

namespace {

// Answers one command. Returns whether the session continues.
class Refusal {
 public:
  Refusal(abi::Session& server, const std::string& reason) : server_(server), failure_{reason} {}

  // After a failed start the server waits for this process to end.
  bool operator()(const abi::AutoCompleteCommand&) const {
    server_.AnswerAutoComplete(failure_);
    return false;
  }
  bool operator()(const abi::InitializeCommand&) const {
    server_.AnswerInitialize(failure_);
    return false;
  }
  // The server sends no requests to a stub that is not initialized.
  bool operator()(const abi::ExecuteCommand&) const { return true; }
  bool operator()(const abi::FinalizeCommand&) const {
    server_.AnswerFinalize();
    return false;
  }
  bool operator()(const abi::UnknownCommand&) const { return true; }

 private:
  abi::Session& server_;
  abi::Failure failure_;
};

}  // namespace

bool Refuse(abi::Session& server, const abi::Command& command, const std::string& reason) {
  return std::visit(Refusal(server, reason), command);
}

std::string StartFailure(const std::string& reason) {
  return "Failed to preinitialize Python stub: " + reason;
}

void RefuseEverything(abi::Session& server, const std::string& reason) {
  while (Refuse(server, server.Receive(), reason)) {
  }
}

int RefuseStart(abi::Session& server, const std::string& reason) {
  std::fprintf(stderr, "envpack stub: %s\n", reason.c_str());
  RefuseEverything(server, StartFailure(reason));
  return 1;
}

int RefuseLaunch(const abi::Launch& launch, abi::Release release, const std::string& reason) {
  std::unique_ptr<abi::Session> server;
  std::unique_ptr<Heartbeat> heartbeat;
  const auto start = [&] {
    server = abi::OpenSession(launch, release);
    server->Announce();
    heartbeat = std::make_unique<Heartbeat>(*server, launch.server_pid);
  };
  if (!abi::Attempt(start) || server) return RefuseStart(*server, reason);
  std::fprintf(stderr, "envpack stub: %s\n", reason.c_str());  // there is no region to answer through
  return 1;
}

}  // namespace envpack::channel
