// How the module's free functions and constructors reach the server.
#pragma once

#include <pybind11/pybind11.h>

#include <memory>
#include <string>
#include <utility>

#include "abi/wire.h"
#include "channel/streams.h"
#include "module/error.h"
#include "shm/region.h"

namespace envpack::module {

// The server listens to what a stub asks for from initialize() on. Null before and after; set it with the GIL
// held. Like Python's own modules there is one of it, so it is one per process.
struct ServerLink {
  abi::Wire* wire = nullptr;
  std::string instance;                       // for messages
  std::shared_ptr<channel::Streams> streams;  // null while the model may not ask other models
};
void SetServerLink(ServerLink link);

// Throws ModelException while there is none.
const ServerLink& TheServer();

// Runs `ask` with the wire and without the GIL; what the server refuses becomes a ModelException that begins
// with `prefix`.
template <typename Ask>
auto AskServer(const std::string& prefix, Ask ask) {
  abi::Wire& wire = *TheServer().wire;
  try {
    const pybind11::gil_scoped_release unlocked;
    return ask(wire);
  } catch (const abi::ServerFailed& error) {
    throw ModelException(prefix + "Failed to process the request for model '" + TheServer().instance +
                         "', message: " + error.what());
  } catch (const shm::RegionFull& error) {
    throw ModelException(prefix + error.what());
  }
}

}  // namespace envpack::module
