#include "channel/refusal.h"

#include <variant>

namespace envpack::channel {

namespace {

// Answers one command; true if the conversation goes on.
class Refusal {
 public:
  Refusal(abi::Attendance& server, const std::string& reason) : server_(server), failure_{reason} {}

  // After a failed start the server only waits for this process to end.
  bool operator()(const abi::AutoCompleteCommand&) const {
    server_.AnswerAutoComplete(failure_);
    return false;
  }
  bool operator()(const abi::InitializeCommand&) const {
    server_.AnswerInitialize(failure_);
    return false;
  }
  // The server sends no requests to a stub that has not been initialized.
  bool operator()(const abi::ExecuteCommand&) const { return true; }
  bool operator()(const abi::FinalizeCommand&) const {
    server_.AnswerFinalize();
    return false;
  }
  bool operator()(const abi::UnknownCommand&) const { return true; }

 private:
  abi::Attendance& server_;
  abi::Failure failure_;
};

}  // namespace

bool Refuse(abi::Attendance& server, const abi::Command& command, const std::string& reason) {
  return std::visit(Refusal(server, reason), command);
}

void RefuseEverything(abi::Attendance& server, const std::string& reason) {
  while (Refuse(server, server.Receive(), reason)) {
  }
}

}  // namespace envpack::channel
