// A stub that has said hello, and what most tests give it to do.
#pragma once

#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "peer.h"
#include "stub_process.h"

namespace envpack::test {

// Shows most of what an execute() can do; the request's id says what.
extern const char kModel[];

extern const std::map<std::string, std::string> kArguments;

std::string Floats(std::initializer_list<float> values);
PeerRequest Ask(const std::string& id, const PeerTensor& tensor);
extern const PeerTensor kTwoFloats;

// A stub that has said hello.
struct Started {
  explicit Started(const std::string& code) : Started(code, StubProcess::Options{}, Peer::Options{}) {}
  Started(const std::string& code, const StubProcess::Options& options, const Peer::Options& peer_options)
      : peer(peer_options), model(WriteModel(code)), stub(peer, model, options) {
    peer.TakeSign();
  }

  // The error.
  std::optional<std::string> Initialize();
  ExecuteAnswer Execute(const std::vector<PeerRequest>& requests);
  // The stub's last line of its own, which says what runs, comes before anything that the model logs.
  void SkipReport();

  Peer peer;
  std::string model;
  StubProcess stub;
};

}  // namespace envpack::test
