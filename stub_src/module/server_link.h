// How the module's classes and functions reach the server.
#pragma once

#include <pybind11/pybind11.h>

#include <memory>
#include <string>

#include "abi/wire.h"
#include "base/forks.h"
#include "channel/streams.h"
#include "module/error.h"

namespace envpack::module {

// The connection to the server. Available from initialize() to finalize(); before and after, the wire is
// null. One per process. Set it with the GIL held.
struct ServerLink {
  abi::Wire* wire = nullptr;
  std::string instance;                       // for messages
  std::shared_ptr<channel::Streams> streams;  // null while the model must not send requests to other models
};
void SetServerLink(ServerLink link);

// Throws ModelException if the wire is null.
const ServerLink& TheServer();

// Throws ModelException unless the server has the feature. `what` begins the message: "Histograms need".
void Require(const abi::Wire& wire, abi::Feature feature, const std::string& what);

// Throws ModelException in a process that the owner of an object has forked. The server and the owner do not
// know what such a process does with its copy. `what` is the start of the message: "Response senders are".
void RequireOwner(const forks::OwnerProcess& owner, const std::string& what);

// Runs `action` without the GIL. Everything that waits for the server must run without it.
template <typename Action>
auto Unlocked(Action action) {
  const pybind11::gil_scoped_release unlocked;
  return action();
}

// Runs `call` with the wire, without the GIL. An error of the server becomes a ModelException after `prefix`.
template <typename Call>
auto CallServer(const std::string& prefix, Call call) {
  abi::Wire& wire = *TheServer().wire;
  try {
    return Unlocked([&] { return call(wire); });
  } catch (const abi::ServerError& error) {
    throw ModelException(prefix + "Failed to process the request for model '" + TheServer().instance +
                         "', message: " + error.what());
  } catch (const abi::RegionFull& error) {
    throw ModelException(prefix + error.what());
  }
}

}  // namespace envpack::module
