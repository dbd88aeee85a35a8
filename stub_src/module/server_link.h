// How the module's free functions and constructors reach the server.
#pragma once

#include <pybind11/pybind11.h>

#include <string>
#include <utility>

#include "abi/wire.h"
#include "module/error.h"

namespace envpack::module {

// The server listens to what a stub asks for from initialize() on. Null before and after; set it with the GIL
// held. Like Python's own modules there is one of it, so it is one per process.
struct ServerLink {
  abi::Wire* wire = nullptr;
  std::string instance;  // for messages
};
void SetServerLink(ServerLink link);

// Throws ModelException while there is none.
const ServerLink& TheServer();

// Runs `ask` with the wire and without the GIL; what the server refuses becomes a ModelException that begins
// with `prefix`.
template <typename Ask>
auto AskServer(const std::string& prefix, Ask ask) {
  const ServerLink& link = TheServer();
  try {
    const pybind11::gil_scoped_release unlocked;
    return ask(*link.wire);
  } catch (const abi::ServerFailed& error) {
    throw ModelException(prefix + "Failed to process the request for model '" + link.instance +
                         "', message: " + error.what());
  }
}

}  // namespace envpack::module
