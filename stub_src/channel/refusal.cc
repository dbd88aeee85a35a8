#include "channel/refusal.h"

#include <variant>

namespace envpack::channel {

namespace {

// Answers one command; true if the conversation goes on.
class Refusal {
 public:
  Refusal(abi::Wire& wire, const std::string& reason) : wire_(wire), failure_{reason} {}

  // After a failed start the server only waits for this process to end.
  bool operator()(const abi::AutoCompleteCommand&) const {
    wire_.AnswerAutoComplete(failure_);
    return false;
  }
  bool operator()(const abi::InitializeCommand&) const {
    wire_.AnswerInitialize(failure_);
    return false;
  }
  bool operator()(const abi::ExecuteCommand&) const {
    wire_.AnswerExecute(abi::ExecuteFailure{failure_.text});
    return true;
  }
  bool operator()(const abi::FinalizeCommand&) const {
    wire_.AnswerFinalize();
    return false;
  }
  bool operator()(const abi::UnknownCommand&) const { return true; }

 private:
  abi::Wire& wire_;
  abi::Failure failure_;
};

}  // namespace

bool Refuse(abi::Wire& wire, const abi::Command& command, const std::string& reason) {
  return std::visit(Refusal(wire, reason), command);
}

void RefuseEverything(abi::Wire& wire, const std::string& reason) {
  while (Refuse(wire, wire.Receive(), reason)) {
  }
}

}  // namespace envpack::channel
