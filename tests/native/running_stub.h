// A stub that has sent its startup message, and the model and requests of most tests.
#pragma once

#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "peer.h"
#include "stub_process.h"

namespace envpack::test {

// A model whose execute() uses most features. The request's id selects one.
extern const char kModel[];

// A model whose execute() runs the id of each request as Python code, and returns the code's variable
// `answer` as JSON, unless the variable `decoupled` is set in its environment. The code finds `request`,
// `kept` from earlier requests, and what the module contains. `more` is Python code behind the model's.
std::string ScriptModel(const std::string& more = "");

extern const std::map<std::string, std::string> kArguments;

std::string Floats(std::initializer_list<float> values);
PeerRequest RequestOf(const std::string& id, const PeerTensor& tensor);
extern const PeerTensor kTwoFloats;

// A stub that has sent its startup message.
struct RunningStub {
  explicit RunningStub(const std::string& code)
      : RunningStub(code, StubProcess::Options{}, Peer::Options{}) {}
  RunningStub(const std::string& code, const StubProcess::Options& options, const Peer::Options& peer_options)
      : peer(peer_options), model(WriteModel(code)), stub(peer, model, options) {
    peer.TakeStartupMessage();
  }

  // Returns the error.
  std::optional<std::string> Initialize();
  ExecuteAnswer Execute(const std::vector<PeerRequest>& requests);
  // Takes the stub's own log line, which describes what runs and precedes the log lines of the model.
  void SkipReport();

  Peer peer;
  std::string model;
  StubProcess stub;
};

}  // namespace envpack::test
