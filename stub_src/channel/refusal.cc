#include "channel/refusal.h"

#include <variant>

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

void RefuseEverything(abi::Session& server, const std::string& reason) {
  while (Refuse(server, server.Receive(), reason)) {
  }
}

}  // namespace envpack::channel
